//go:build unix

package execlock

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// group is the command's process group, and the other groups that its descendants make.
// Signals are for the command's own. The others hear from the process that made them, and from us only
// where the command must not work without its lock.
type group struct {
	id      int            // of the group, and of the command that leads it; 0: not started
	stopped syscall.Signal // that stopped the leader, 0 if it runs
	ended   bool           // the leader
	gone    bool           // all of it: the system may have given the id to others
	end     End

	held      map[int]bool // other groups that were stopped with it
	signalled map[int]bool // other groups that were asked to end
	strangers map[int]bool // children and groups that we had before the command
}

// start starts the command at the head of a group of its own.
func (g *group) start(cmd *exec.Cmd, _ *Signals) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	g.adopt()
	if err := cmd.Start(); err != nil {
		return err
	}
	g.id = cmd.Process.Pid
	return cmd.Process.Release() // look is the only one that waits for it
}

// look takes what has become of this process's children. It returns the signal that
// stopped the leader, if that is news. The leader is not the only child: we inherit
// orphans, as PID 1 of a container those of others too, and must not leave them as zombies.
// (exec.Cmd.Wait reports neither these nor a command that was stopped.)
func (g *group) look() (stopped syscall.Signal) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG|unix.WUNTRACED|unix.WCONTINUED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil && g.id != 0 && !g.ended:
			g.ended, g.end.Code = true, 1 // somebody else has waited for it: its code is unknown
			return 0
		case err != nil || pid == 0:
			return stopped
		case pid != g.id:
			continue
		case status.Stopped():
			g.stopped = status.StopSignal()
			stopped = g.stopped
			continue
		case status.Continued():
			g.stopped, stopped = 0, 0
			continue
		case status.Signaled():
			g.end = End{128 + int(status.Signal()), status.Signal()}
		default:
			g.end = End{Code: status.ExitStatus()}
		}
		g.ended, g.stopped, stopped = true, 0, 0
	}
}

// signal sends s to the whole group. A group that is stopped is woken to heed a
// signal that asks it to end.
func (g *group) signal(s os.Signal) error {
	number, ok := s.(syscall.Signal)
	if !ok {
		return nil
	}
	err := g.tell(number)
	if ends(s) {
		_ = g.resume()
	}
	return err
}

func (g *group) resume() error {
	g.stopped = 0
	for id := range g.held {
		_ = tell(id, unix.SIGCONT)
	}
	g.held = nil
	return g.tell(unix.SIGCONT)
}

// endOthers asks the other groups to end whose command has ended without doing so.
func (g *group) endOthers() {
	for _, p := range g.others() {
		if !g.signalled[p.group] {
			if g.signalled == nil {
				g.signalled = make(map[int]bool)
			}
			g.signalled[p.group] = true
			_ = tell(p.group, unix.SIGTERM)
			_ = tell(p.group, unix.SIGCONT)
		}
	}
}

func (g *group) kill() error {
	err := g.tell(unix.SIGKILL)
	for range 2 { // one may have made another group before it was killed
		for _, p := range g.others() {
			_ = tell(p.group, unix.SIGKILL)
		}
	}
	return err
}

func (g *group) tell(s syscall.Signal) error {
	if g.gone {
		return nil
	}
	return tell(g.id, s)
}

func tell(group int, s syscall.Signal) error {
	if err := unix.Kill(-group, s); !errors.Is(err, unix.ESRCH) { // it has just ended
		return err
	}
	return nil
}

// looks is how often the processes are looked at before it is said that there are none. They
// are read one after the other, so a look may miss one that just succeeds another:
//
//	the list is read, the parent starts a child and ends, the parent is read
const looks = 2

// remains reports whether any of the command lives.
func (g *group) remains() bool { return g.ownRemains() || len(g.others()) > 0 }

// ownRemains reports whether any process of the group lives. The group's id is not
// given to others while one does. Later it may be, while other groups are waited for.
func (g *group) ownRemains() bool {
	g.gone = g.gone || g.ended && !g.lives()
	return !g.gone
}

func (g *group) lives() bool {
	for range looks {
		if errors.Is(unix.Kill(-g.id, 0), unix.ESRCH) {
			return false
		}
		all, known := members(g.id) // the kernel counts zombies, which may stay for ever
		if !known || slices.ContainsFunc(all, func(p process) bool { return !p.zombie() }) {
			return true
		}
	}
	return false
}

// works reports whether any process of the group may be running.
func (g *group) works() bool {
	all, known := members(g.id)
	for _, p := range all {
		if !p.zombie() && !p.stopped() {
			return true
		}
	}
	return !known
}

// suspend stops what of the group has not stopped by itself. Programs that put the
// terminal in order before they stop get a moment for it.
func (g *group) suspend() {
	for until := time.Now().Add(200 * time.Millisecond); g.works() && time.Now().Before(until); {
		time.Sleep(5 * time.Millisecond)
	}
	_ = g.tell(unix.SIGSTOP)
	g.held = make(map[int]bool)
	for _, p := range g.others() {
		if !p.stopped() {
			g.held[p.group] = true
			_ = tell(p.group, unix.SIGSTOP)
		}
	}
}
