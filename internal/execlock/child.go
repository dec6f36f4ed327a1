package execlock

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// child is the running command. It leads a process group of its own, so that a
// signal reaches what it has started too.
type child struct {
	cmd   *exec.Cmd
	group group
	ended chan struct{}
	code  int // after ended
}

// start starts the command with the streams of this process.
func start(cfg Config) (*child, error) {
	cmd := exec.Command(cfg.Command[0], cfg.Command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), NameEnv+"="+cfg.Name)
	c := &child{cmd: cmd, ended: make(chan struct{})}
	c.group.prepare(cmd)
	started := make(chan error)
	go func() {
		// On Linux the kernel kills the command when the thread that started it ends,
		// not the process: this one stays until the command has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // what it says is in ProcessState
		c.code = exitCode(cmd.ProcessState)
		close(c.ended)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStart, err)
	}
	c.group.started(cmd.Process)
	return c, nil
}

// attend waits until the command has ended, passes signals on to it, and ends it if
// the lock is lost: the result is that loss.
//
//	running --lock lost--> asked to end --Grace--> killed
//	   |                        |                    |
//	   +-----------------> leader ended <------------+
func (c *child) attend(hold *engine.Hold, cfg Config) (lost error) {
	defer c.group.ended()
	holdDone := hold.Done()
	var killTime <-chan time.Time
	for {
		select {
		case <-c.ended:
			if killTime != nil {
				c.group.killRest(killTime)
			}
			return lost
		case s := <-cfg.Signals:
			c.group.signal(s)
		case <-holdDone:
			holdDone = nil
			lost = hold.Err()
			if cfg.KeepRunning {
				cfg.Warn("%v; the command goes on", lost)
				break
			}
			cfg.Warn("%v; the command is asked to end, and killed in %v", lost, cfg.Grace)
			c.group.signal(syscall.SIGTERM)
			timer := time.NewTimer(cfg.Grace)
			defer timer.Stop()
			killTime = timer.C
		case <-killTime:
			cfg.Warn("the command did not end within %v and is killed", cfg.Grace)
			c.group.kill()
			<-c.ended
			return lost
		}
	}
}

// exitCode is the code that a shell gives.
func exitCode(s *os.ProcessState) int {
	if status, ok := s.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return s.ExitCode()
}
