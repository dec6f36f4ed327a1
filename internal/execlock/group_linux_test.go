package execlock

import (
	"os/exec"
	"syscall"
	"testing"
)

// begin starts a process in a group of its own.
func begin(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd
}

// The system gives the id away once all of the group has ended, while other groups of the
// command may still have to be waited for.
func TestGroup_Ended_GivesItsIDAway(t *testing.T) {
	t.Parallel()
	command := begin(t)
	g := group{id: command.Process.Pid}
	if !g.ownRemains() {
		t.Fatal("the command does not live")
	}
	_ = command.Process.Kill()
	_ = command.Wait()
	g.ended = true
	if g.ownRemains() {
		t.Fatal("the command lives on")
	}
	stranger := begin(t)
	g.id = stranger.Process.Pid // as if it were the same
	if g.ownRemains() {
		t.Error("the stranger with the id is waited for")
	}
	for _, send := range []func() error{
		func() error { return g.signal(syscall.SIGTERM) },
		func() error { return g.tell(syscall.SIGKILL) },
	} {
		if err := send(); err != nil {
			t.Error(err)
		}
	}
	_ = stranger.Process.Signal(syscall.SIGUSR1)
	if _ = stranger.Wait(); stranger.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGUSR1 {
		t.Errorf("the stranger with the id: %v", stranger.ProcessState)
	}
}

// One look may miss a process that just succeeds another. If that were the end of the group,
// pawl would end while it works.
func TestGroup_ProcessSucceededByItsChild_IsNotOver(t *testing.T) {
	// Not parallel: a test that ends all of a command finds this one's processes, too.
	needsProc(t)
	new(group).adopt() // the child, whose parent ends
	for range 10 {
		cmd := exec.Command("sh", "-c", "sleep 60 & exit")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		own := group{id: cmd.Process.Pid, ended: true}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for looks := 2; looks > 0; {
			if !own.ownRemains() {
				t.Error("its group has ended")
			}
			select {
			case err := <-ended:
				ended <- err
				looks--
			default:
			}
		}
		_ = syscall.Kill(-own.id, syscall.SIGKILL)
		if t.Failed() {
			return
		}
	}
}
