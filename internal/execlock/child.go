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
	group   group
	resumed chan struct{} // this process was suspended with the command, and goes on
	ended   chan struct{}
	code    int // after ended
}

// start starts the command with the streams of this process.
func start(cfg Config) (*child, error) {
	cmd := exec.Command(cfg.Command[0], cfg.Command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), NameEnv+"="+cfg.Name)
	c := &child{resumed: make(chan struct{}, 1), ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// On Linux the kernel kills the command when the thread that started it ends,
		// not the process: this one stays until the command has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.group.start(cmd)
		started <- err
		if err != nil {
			return
		}
		c.code = c.group.wait(c.resumed)
		close(c.ended)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStart, err)
	}
	return c, nil
}

// attend waits until the command has ended, passes signals on to it, and ends it if
// the lock is lost: the result is that loss.
//
//	running --lock lost--> asked to end --Grace--> killed
//	   |                        |                    |
//	   +-----------------> leader ended <------------+
func (c *child) attend(hold *engine.Hold, cfg Config) (lost error) {
	defer c.group.close()
	grace := time.NewTimer(cfg.Grace)
	grace.Stop()
	defer grace.Stop()
	holdDone := hold.Done()
	lose := func() {
		holdDone = nil
		lost = hold.Err()
		if cfg.KeepRunning {
			cfg.Warn("%v; the command goes on", lost)
			return
		}
		cfg.Warn("%v; the command is asked to end, and killed in %v", lost, cfg.Grace)
		c.group.signal(syscall.SIGTERM)
		grace.Reset(cfg.Grace)
	}
	for {
		select {
		case <-c.ended:
			if lost != nil && !cfg.KeepRunning {
				c.group.killRest(grace.C)
			}
			return lost
		case s := <-cfg.Signals:
			c.group.signal(s)
		case <-c.resumed:
			// The lock was not renewed while we were suspended; if it is lost, the command
			// must hear that first.
			if holdDone != nil && hold.Err() != nil {
				lose()
			}
			c.group.resume()
		case <-holdDone:
			lose()
		case <-grace.C:
			cfg.Warn("the command did not end within %v and is killed", cfg.Grace)
			c.group.kill()
			<-c.ended
			return lost
		}
	}
}
