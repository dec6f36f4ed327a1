package execlock

import (
	"errors"

	"golang.org/x/sys/unix"
)

// adopt has descendants whose parent ends become children of this process, instead of
// the system's first one, so that all of the command is found when the job is suspended
// or has lost its lock. It comes before the command starts, and takes note of the children
// that we have from before, such as the jobs of a shell that became us.
func (g *group) adopt() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if errors.Is(err, unix.ECHILD) {
		return // which spares us a look at all processes
	}
	known, _ := processes()
	child := descent(known)
	g.strangers = make(map[int]bool)
	for _, p := range known {
		if c := child(p.pid); c != 0 {
			g.strangers[c], g.strangers[p.group] = true, true // their orphans are known by the group
		}
	}
}

// others returns what of the command lives outside its group: jobs of a shell, what
// timeout(1) runs, or the command of a pawl below this one. What has left the session,
// as a daemon does, is its own affair.
func (g *group) others() (all []process) {
	for range looks {
		if all = g.othersNow(); len(all) > 0 {
			break
		}
	}
	return all
}

func (g *group) othersNow() (all []process) {
	known, _ := processes()
	child := descent(known)
	session, _ := unix.Getsid(0)
	for _, p := range known {
		if p.session != session || p.group == g.id || p.group == unix.Getpgrp() || p.zombie() {
			continue
		}
		if c := child(p.pid); c != 0 && !g.strangers[c] && !g.strangers[p.group] {
			all = append(all, p)
		}
	}
	return all
}
