package execlock

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// child is the running command.
//
//	running <--job control--> suspended, with this process
//	   |                          |
//	   +------ lock lost ---------+--> asked to end --Grace--> killed
//	   |                                    |                    |
//	   +------------------------------> the leader has ended <---+
//	                                        |
//	                          over: and so has the rest, if the lock was lost
//
// It belongs to one goroutine, which waits for nothing but events.
type child struct {
	*runner
	hold     *engine.Hold
	holdDone <-chan struct{} // nil: the loss is known
	lost     error
	group    group
	terminal terminal
	stop     stopRequest
	stopBy   syscall.Signal // that was asked with
	stopAt   time.Time      // when it was asked
	killed   time.Time      // zero: not
	grace    *time.Timer
}

// start starts the command with the streams of this process.
func (r *runner) start(hold *engine.Hold) (*child, error) {
	// We may have been suspended since the lock was granted.
	if err := hold.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStart, err)
	}
	cmd := exec.Command(r.Command[0], r.Command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = r.environment(hold)
	c := &child{runner: r, hold: hold, holdDone: hold.Done(), grace: time.NewTimer(r.Grace)}
	c.grace.Stop()
	c.terminal.open()
	r.sig.catchJobControl()
	if err := c.group.start(cmd, r.sig); err != nil {
		c.terminal.close()
		return nil, fmt.Errorf("%w: %w", ErrStart, err)
	}
	r.sig.started()
	return c, nil
}

// environment is what the command gets: that of this process, with what is held. The token of
// another lock, under which this process may run itself, would mislead beside this lock's name.
func (r *runner) environment(hold *engine.Hold) []string {
	env := slices.DeleteFunc(os.Environ(), func(one string) bool { return strings.HasPrefix(one, TokenEnv+"=") })
	if token := hold.Token(); token > 0 {
		env = append(env, fmt.Sprintf("%s=%d", TokenEnv, token))
	}
	return append(env, NameEnv+"="+strings.Join(r.Names, "\n"))
}

// attend waits until the command has ended, passes signals on to it, and ends it if
// the lock is lost.
func (c *child) attend() {
	defer c.grace.Stop()
	pause := 10 * time.Millisecond
	poll := time.NewTimer(pause)
	poll.Stop()
	defer poll.Stop()
	for !c.over() {
		select {
		case <-c.sig.children:
			if stopped := c.group.look(); stopped != 0 {
				c.stopped(stopped)
			}
			if c.group.ended && c.ending() {
				c.group.endOthers()
				poll.Reset(pause) // nobody reports what the leader has left
			}
		case s := <-c.sig.asked:
			c.heed(s)
		case <-c.sig.resumed:
			c.resumed()
		case <-c.holdDone:
			c.lose()
		case <-c.grace.C:
			c.kill()
			pause = 10 * time.Millisecond
			poll.Reset(pause)
		case <-poll.C:
			if !c.killed.IsZero() { // it may have made another group since
				_ = c.group.kill()
			}
			pause = min(2*pause, 200*time.Millisecond)
			poll.Reset(pause)
		}
	}
	c.leave()
	c.terminal.close()
}

// ending reports whether the command was told to end.
func (c *child) ending() bool { return c.lost != nil && !c.KeepRunning }

// dying is how long what gets SIGKILL may take to end: on a busy machine it must have its
// turn for that. What hangs in the kernel, or is another user's, may never end.
const dying = 2 * time.Second

// over reports whether nothing of the command works under the lock any more. What a
// command leaves behind on purpose is its own affair, unless the lock was lost.
func (c *child) over() bool {
	switch {
	case !c.group.ended:
		return false
	case !c.ending(), !c.killed.IsZero() && time.Since(c.killed) > dying:
		return true
	}
	return !c.group.remains()
}

// lose tells the command, once, that the lock is lost.
func (c *child) lose() {
	if c.lost != nil {
		return
	}
	c.holdDone, c.lost = nil, c.hold.Err()
	if c.KeepRunning {
		c.Say("%s; the command goes on", text(c.lost))
		return
	}
	c.send(syscall.SIGTERM)
	c.grace.Reset(c.Grace)
	c.Say("%s; the command gets SIGTERM now, and SIGKILL in %v", text(c.lost), c.Grace)
}

// text is what the user gets to read of an engine's error.
func text(err error) string { return strings.TrimPrefix(err.Error(), "engine: ") }

// kill ends what did not end when it was asked to.
func (c *child) kill() {
	c.killed = time.Now()
	c.leaveTerminal(true) // an interactive shell has lent it on, and returns it no more
	err := c.group.kill()
	c.Say("the command did not end within %v and gets SIGKILL", c.Grace)
	c.complain(err)
}

// send passes a signal on.
func (c *child) send(s os.Signal) { c.complain(c.group.signal(s)) }

func (c *child) complain(err error) {
	if err != nil {
		c.Say("cannot send a signal to the command: %v", err)
	}
}
