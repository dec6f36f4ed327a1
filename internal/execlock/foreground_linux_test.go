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

// foregroundWhileItStops is a job on a terminal of its own. It was in the background, where another process of it
// wanted the terminal:
//
//	we ask the command to stop (SIGTTIN), a shell brings the job to the front, we see that the command has stopped
//
// The shell sends no SIGCONT, for it knows of no stop. The helper says how often the command was stopped, whether it is
// still, and who has the terminal.
func foregroundWhileItStops() {
	c := &child{runner: &runner{Config: Config{Say: func(string, ...any) {}}}, hold: new(engine.Hold)}
	c.terminal.open()
	cmd := exec.Command("sleep", "60")
	cmd.Stdin = os.Stdin
	if err := c.group.start(cmd, nil); err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.group.tell(unix.SIGKILL) }()
	c.askToStop(syscall.SIGTTIN) // as heed does; our job is in front by now
	stops, began := 0, time.Now()
	for first := began; stops == 0 && time.Since(began) < 10*time.Second || time.Since(first) < 300*time.Millisecond; time.Sleep(time.Millisecond) {
		if by := c.group.look(); by != 0 {
			if stops++; stops == 1 {
				first = time.Now()
			}
			c.stopped(by)
		}
	}
	state, front := "runs", "another"
	if stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.group.id)); strings.Contains(string(stat), ") T ") {
		state = "is stopped"
	}
	if c.terminal.front() == unix.Getpgrp() {
		front = "our job"
	}
	fmt.Printf("stopped %d times, %s; %s has the terminal\n", stops, state, front)
}

func TestAJobThatComesToTheFrontWhileItsCommandStopsGoesOn(t *testing.T) {
	t.Parallel()
	if got := onATerminal(t, "fg while it stops"); got != "stopped 1 times, runs; our job has the terminal" {
		t.Error("the command:", got)
	}
}
