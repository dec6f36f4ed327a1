package execlock

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pawl-lock/pawl/engine"
)

func init() { helpers["fg while it stops"] = foregroundWhileItStops }

// foregroundWhileItStops: the job was in the background, another process of it wanted the terminal, so we asked
// the command to stop (SIGTTIN). Before we know that it has, a shell brings the job to the front (no SIGCONT, as it
// knows of no stop).
func foregroundWhileItStops() {
	c := &child{runner: &runner{Config: Config{Say: func(string, ...any) {}}}, hold: new(engine.Hold)}
	c.terminal.open()
	cmd := exec.Command("sh", "-c", "while :; do sleep 0.05; done")
	cmd.Stdin = os.Stdin
	if err := c.group.start(cmd, nil); err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.group.tell(unix.SIGKILL) }()
	time.Sleep(100 * time.Millisecond)
	c.askToStop(syscall.SIGTTIN) // as heed does; our job is in front by now
	stops := 0
	for began := time.Now(); time.Since(began) < time.Second; time.Sleep(time.Millisecond) {
		if by := c.group.look(); by != 0 {
			stops++
			c.stopped(by)
		}
	}
	fmt.Println(stops)
}

func TestAJobThatComesToTheFrontWhileItsCommandStopsGoesOn(t *testing.T) {
	t.Parallel()
	master, slave := pseudoTerminal(t)
	defer master.Close()
	self := exec.Command(os.Args[0])
	self.Env = append(os.Environ(), helperEnv+"=fg while it stops")
	self.Stdin = slave
	self.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	out, err := self.Output()
	slave.Close()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(out)); got != "1" {
		t.Errorf("the command was stopped %s times in a second", got)
	}
}
