package execlock

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/embedded"
)

func init() { helpers["stop"] = stopWhenAsked }

// stopWhenAsked stops itself and its process group for every line that it reads, and
// says when it goes on. On the line "self" the others have stopped already.
func stopWhenAsked() {
	s := Catch()
	s.catchJobControl()
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(s.stopSelf(syscall.SIGTTIN, lines.Text() == "all"))
	}
}

// What ignored a Ctrl-Z was resumed with the rest of its job. That ends nothing but the
// Ctrl-Z.
func TestJobControl_CtrlZIgnored_CanBeStoppedLater(t *testing.T) {
	t.Parallel()
	in, ignoring := io.Pipe()
	cmd := exec.Command("sh", "-c", "trap '' TSTP; echo; exec sleep 60")
	cmd.Stdout, cmd.SysProcAttr = ignoring, &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := in.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	c := &child{runner: &runner{Config: Config{Say: t.Logf}}, hold: new(engine.Hold), group: group{id: cmd.Process.Pid}}
	c.askToStop(syscall.SIGTSTP)
	c.resumed()
	c.group.stopped = syscall.SIGSTOP
	c.stopped(syscall.SIGSTOP) // no terminal: it stays so
	if c.group.stopped == 0 {
		t.Error("it was resumed at once")
	}
}

// It must not even begin to work under a lock that somebody else may have by now.
func TestJobControl_LockLostWhileSuspended_EndsBeforeItResumes(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	eng, err := engine.Open(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	hold, err := eng.Mutex("a").TryLock(t.Context(), engine.Lease(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	<-hold.Done()
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	c := &child{
		runner: &runner{Config: Config{Say: t.Logf, Grace: time.Minute}}, hold: hold,
		grace: time.NewTimer(time.Minute), group: group{id: cmd.Process.Pid, stopped: syscall.SIGTSTP},
	}
	if err := c.group.tell(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if c.goOn(); c.lost == nil {
		t.Fatal("it goes on as if it had the lock")
	}
	if err := cmd.Wait(); cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Error(err)
	}
}

// A shell hears that a job has stopped when one process of it has, and may resume the job
// at once: a process that stops after that is resumed by nobody.
func TestJobControl_ResumedBeforeAllStopped_GoesOn(t *testing.T) {
	t.Parallel()
	other := exec.Command("sleep", "60")
	other.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	job := other.Process.Pid
	self := exec.Command(os.Args[0])
	self.Env = append(os.Environ(), helperEnv+"=stop")
	self.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: job}
	in, _ := self.StdinPipe()
	out, _ := self.StdoutPipe()
	if err := self.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Kill(-job, unix.SIGKILL)
		_, _ = self.Wait(), other.Wait()
	})
	said := make(chan string)
	go func() {
		defer close(said)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			said <- lines.Text()
		}
	}()
	hear := func() string {
		select {
		case line := <-said:
			return line
		case <-time.After(20 * time.Second):
			stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", self.Process.Pid))
			t.Fatalf("it does not go on: %s", stat)
			return ""
		}
	}
	hear()
	stop := func(whom string) {
		if _, err := fmt.Fprintln(in, whom); err != nil {
			t.Fatal(err)
		}
	}
	resume := func() {
		if err := unix.Kill(-job, unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if line := hear(); !strings.HasPrefix(line, "true") {
			t.Fatalf("resumed: %s", line)
		}
	}
	for range 200 {
		stop("all")
		var status unix.WaitStatus
		if _, err := unix.Wait4(job, &status, unix.WUNTRACED, nil); err != nil || !status.Stopped() {
			t.Fatal(err, status)
		}
		resume()
	}
	for i := range 20 {
		stop("self")
		time.Sleep(time.Duration(i) * time.Millisecond) // the moment is the test's variable
		resume()
	}
}

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
	for first := began; stops == 0 && time.Since(began) < 10*time.Second || time.Since(first) < 300*time.Millisecond; time.Sleep(time.Millisecond) { // no second stop may come for that long
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

func TestJobControl_ForegroundWhileTheCommandStops_GoesOn(t *testing.T) {
	t.Parallel()
	if got := onATerminal(t, "fg while it stops"); got != "stopped 1 times, runs; our job has the terminal" {
		t.Error("the command:", got)
	}
}
