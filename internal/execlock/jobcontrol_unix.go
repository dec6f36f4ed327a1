//go:build unix

package execlock

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A shell makes a process group of each of its jobs (a pipeline, or a script with all
// that it runs), and puts one of them into the terminal's foreground: Ctrl-C, Ctrl-\
// and Ctrl-Z reach the processes of that group, and only they may read the terminal.
// The command is in a group of its own, which the shell does not know. So:
//
//   - Our job keeps the foreground, and we pass on what the terminal says.
//   - A command that reads the terminal, or changes its mode, is stopped by the kernel
//     with SIGTTIN or SIGTTOU. We see that, lend it the foreground and let it go on.
//     While it has the foreground the terminal talks to it alone; so if Ctrl-C ends
//     it we tell our job, and if Ctrl-Z stops it we stop our job.
//   - If another process of our job wants the terminal meanwhile, it is stopped, and
//     we hear of it because the signal goes to its whole group. We take it back.
//   - We never stop while the command runs: nobody would renew its lock. Asked to stop,
//     we ask the command; when it has stopped we stop, as the shell expects. Resumed,
//     we look whether we still have the lock before the command goes on.

// heed reacts to a signal that this process got.
func (c *child) heed(s os.Signal) {
	switch s {
	case syscall.SIGTSTP:
		c.askToStop(syscall.SIGTSTP)
	case syscall.SIGTTIN, syscall.SIGTTOU:
		if !c.terminal.serveJob(c.group.id) {
			c.askToStop(s.(syscall.Signal)) // all of our job is in the background, and stops
		}
	default:
		c.send(s)
	}
}

// askToStop passes a signal to stop on. What comes of it is reported as the end of a
// command is; if the command ignores it, neither of us stops.
func (c *child) askToStop(sig syscall.Signal) {
	switch {
	case c.ending(): // that is not put off
	case c.group.stopped != 0:
		c.suspend(sig)
	default:
		c.stop, c.stopBy, c.stopAt = stopAsked, sig, time.Now()
		c.send(sig)
	}
}

// stopRequest is what became of a request to stop that was passed on.
type stopRequest byte

const (
	stopNotAsked stopRequest = iota
	stopAsked
	stopRevoked // the shell lets the job go on already, since the others have stopped
)

// stopHeeded is how long a command may take to stop, at most, when it is asked to.
const stopHeeded = 5 * time.Second

// stopped reacts to a command that was stopped.
func (c *child) stopped(by syscall.Signal) {
	wantsTerminal := by == syscall.SIGTTIN || by == syscall.SIGTTOU
	request := c.stop
	c.stop = stopNotAsked
	switch {
	case request == stopRevoked && by == c.stopBy:
		c.goOn()
	case wantsTerminal && request == stopAsked && by == c.stopBy && c.terminal.serveJob(c.group.id):
		// Another process of our job wanted the terminal, which our job has by now.
		c.complain(c.group.resume())
	case wantsTerminal && c.terminal.lend(c.group.id):
		c.complain(c.group.resume())
		// SIGCONT takes back a SIGTSTP that it had not heeded yet. One of long ago it has ignored.
		if request == stopAsked && c.stopBy == syscall.SIGTSTP && time.Since(c.stopAt) < stopHeeded {
			c.askToStop(c.stopBy)
		}
	case c.ending():
		if !wantsTerminal { // which it cannot have: it stays stopped until it is killed
			c.complain(c.group.resume())
		}
	case by == syscall.SIGSTOP && !c.terminal.exists():
		// Somebody keeps it still; no shell waits for us to follow. The lock is renewed.
	default:
		c.suspend(by)
	}
}

// suspend stops this process like its command, which was stopped by a signal, until
// a shell lets the job go on.
func (c *child) suspend(by syscall.Signal) {
	c.group.suspend()
	lent := c.terminal.isLent(c.group.id)
	c.terminal.lent, c.terminal.modes, c.terminal.theirs = false, nil, nil // the shell takes it
	wantsTerminal := by == syscall.SIGTTIN || by == syscall.SIGTTOU
	if by == syscall.SIGSTOP {
		by = syscall.SIGTSTP // which has no effect where no shell could let us go on
	}
	// The rest of our job has heard a signal that we heard; not one of the command's.
	resumed := c.sig.stopSelf(by, lent || wantsTerminal)
	if !resumed && wantsTerminal {
		// It would stop again, for ever. The kernel does the same to a stopped job that
		// lost its shell.
		c.Say("the command needs the terminal, which is not available: it gets SIGHUP")
		c.send(syscall.SIGHUP)
	}
	if lent {
		c.terminal.lend(c.group.id) // again, if our job has it again
	}
	c.goOn()
}

// resumed reacts to SIGCONT, which may mean the command.
func (c *child) resumed() {
	switch {
	case c.group.stopped != 0:
		c.goOn()
	case c.stop == stopAsked:
		c.stop = stopRevoked
	}
}

// goOn lets the command go on, which learns of a lost lock first: nobody renewed it
// while this process was stopped.
func (c *child) goOn() {
	if c.hold.Err() != nil {
		c.lose()
	}
	c.complain(c.group.resume())
}

// leave comes when the command has ended. If the terminal told it alone of the Ctrl-C
// that it died of, it tells the rest of our job, a script for example, which ends
// too then.
func (c *child) leave() {
	s := c.group.end.Signal
	if c.leaveTerminal(s != 0 || c.ending()) && (s == syscall.SIGINT || s == syscall.SIGQUIT) {
		c.sig.tellJob(s)
	}
}

// leaveTerminal gives the terminal back to our job, and reports whether the command had
// it. After a command that could not tidy up, it is in order again.
func (c *child) leaveTerminal(tidy bool) bool {
	if !c.terminal.takeBack(c.group.id) {
		return false
	}
	if tidy || c.terminal.theirs != nil { // the rest of our job has modes of its own
		c.terminal.tidy()
	}
	_ = unix.Kill(0, unix.SIGCONT) // who waited for it, stopped
	return true
}

// tellJob sends a signal to the others of our process group.
func (s *Signals) tellJob(sig syscall.Signal) {
	signal.Ignore(sig)
	_ = unix.Kill(0, sig)
	signal.Notify(s.asked, sig)
}

// stopSelf stops this process as the signal would have done, and with it the others
// of its group if they have not heard it. It returns when the process goes on; false
// if it never stopped, because the kernel found that no shell could resume it.
//
// A shell that sees the others stop may let the job go on at once, before we have stopped:
//
//	Ctrl-Z, the others stop, fg, we stop    and nobody resumes us
//
// so the stop is under way before the others hear of it, or, if they have heard, before
// we look whether we were resumed.
func (s *Signals) stopSelf(by syscall.Signal, all bool) (resumed bool) {
	signal.Ignore(by)
	defer signal.Notify(s.asked, by)
	stopProcess(by, func() bool {
		if !all {
			time.Sleep(10 * time.Millisecond) // for a SIGCONT that the runtime has, to be passed on
		}
		select {
		case <-s.resumed: // while the command was being stopped
			resumed = true
		default:
		}
		if all && !resumed {
			_ = unix.Kill(0, by)
		}
		return !resumed
	})
	if resumed {
		return true
	}
	select {
	case <-s.resumed: // the runtime passes it on a moment later
		resumed = true
	case <-time.After(stopPatience(by)):
	}
	return resumed
}

// stopPatience is how long SIGCONT may take to be noticed. Being wrong ends a command
// that wants the terminal, and nothing else.
func stopPatience(by syscall.Signal) time.Duration {
	if by == syscall.SIGTSTP {
		return 50 * time.Millisecond
	}
	return 2 * time.Second
}
