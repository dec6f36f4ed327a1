package execlock

import (
	"os"
	"strconv"
	"strings"
)

// process is what /proc says of one.
type process struct {
	pid, parent, group, session int
	threads                     int
	state                       byte // R, S, D, Z, T..., of the first thread
}

// zombie reports whether it has ended. The state is the first thread's: a process may work
// on without it, and one that was killed may have others that have still to end.
func (p process) zombie() bool { return (p.state == 'Z' || p.state == 'X') && p.threads <= 1 }

func (p process) stopped() bool { return p.state == 'T' || p.state == 't' }

// processes returns all that this process can see. It is not known if /proc is not
// there, or shows another PID namespace than ours.
func processes() (all []process, known bool) {
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return nil, false
	}
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, false
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, false
	}
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it has just ended
		}
		if p, ok := parseStat(string(stat)); ok {
			all = append(all, p)
		}
	}
	return all, true
}

// parseStat reads "pid (name) state parent group session ... threads ...". A name may have spaces and
// parentheses.
func parseStat(stat string) (p process, ok bool) {
	pid, _, _ := strings.Cut(stat, " ")
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 18 {
		return p, false
	}
	p.state = fields[0][0]
	for field, text := range map[*int]string{
		&p.pid: pid, &p.parent: fields[1], &p.group: fields[2], &p.session: fields[3],
		&p.threads: fields[17],
	} {
		n, err := strconv.Atoi(text)
		if err != nil {
			return p, false
		}
		*field = n
	}
	return p, true
}

// members returns the processes of a group.
func members(group int) (all []process, known bool) {
	all, known = processes()
	n := 0
	for _, p := range all {
		if p.group == group {
			all[n] = p
			n++
		}
	}
	return all[:n], known
}

// descent tells which child of this process another one descends from, 0 if none.
func descent(all []process) func(pid int) (child int) {
	parents := make(map[int]int, len(all))
	for _, p := range all {
		parents[p.pid] = p.parent
	}
	return func(pid int) int {
		for steps := 0; pid > 1 && steps < len(all); steps++ {
			parent := parents[pid]
			if parent == os.Getpid() {
				return pid
			}
			pid = parent
		}
		return 0
	}
}

// isOurs reports whether a group has a process that descends from this one.
func isOurs(group int) bool {
	all, _ := processes()
	child := descent(all)
	for _, p := range all {
		if p.group == group && child(p.pid) != 0 {
			return true
		}
	}
	return false
}
