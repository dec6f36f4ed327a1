package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/sim/model"
	"github.com/pawl-lock/pawl/internal/clock"
)

// A FairMutex serves its waiters in the order in which their first try reached the server. The queue there
// knows owners: a waiter that left it and came again, as another owner, would be the last one by the
// server's own record. So this is the record of the waiters. Which of them a first try is of is known if it
// is sent by the call that asks for the lock, as most are.

// turn is that of a waiter.
type turn struct {
	h       *held
	owner   string // of its first try
	came    int    // in the order in which they reached the server; 0: it has not
	lost    bool   // it may have lost its place, and queued again
	granted bool   // on the server; it may be too late
	gaveUp  bool
}

// turns are those that wait for the fair lock.
type turns struct {
	asking *held              // whose call is going on just now
	all    []*turn            // in the order of their calls
	came   int                // first tries that have reached the server
	passed map[string][]*turn // by an owner that was granted: who had come by then, and was not served
}

// queues reports whether it is to wait in the queue of the fair lock.
func (h *held) queues() bool { return h.names[0] == fair && !h.once && h.within == nil }

// sends notes that a command of the call that is going on is sent.
func (t *turns) sends(command []byte) {
	if t.asking == nil {
		return
	}
	if words := model.Words(command); model.BySHA[words[1]] == script.Fair {
		t.all = append(t.all, &turn{h: t.asking, owner: words[6]})
		t.asking = nil
	}
}

// of is the turn of an owner; nil if it is not known.
func (t *turns) of(owner string) *turn {
	i := slices.IndexFunc(t.all, func(one *turn) bool { return one.owner == owner })
	if i < 0 {
		return nil
	}
	return t.all[i]
}

// lose notes that an owner may have lost its place.
func (t *turns) lose(owner string) {
	if one := t.of(owner); one != nil {
		one.lost = true
	}
}

// loseAll notes that all may have: another server has the queue.
func (t *turns) loseAll() {
	for _, one := range t.all {
		one.lost = true
	}
}

// noteTurn notes what the server has done for an owner in the queue.
func (s *Sim) noteTurn(words []string, reply []byte) {
	sent := model.BySHA[words[1]]
	if sent != script.Fair && sent != script.FairRelease || reply[0] != ':' {
		return
	}
	owner := words[6]
	t := s.turns.of(owner)
	if sent == script.FairRelease {
		if t != nil && t.came != 0 && !t.granted {
			s.after(settled, t.h.user.p, func() {
				if s.waits(t) {
					s.fail("%s waits for %s, and its engine has given its place up", t.h.user.name, fair)
				}
			})
		}
		return
	}
	if t != nil && t.came == 0 {
		s.turns.came++
		t.came = s.turns.came
	}
	if string(reply) != ":-2\r\n" {
		return
	}
	if t != nil {
		t.granted = true
	}
	if _, again := s.turns.passed[owner]; !again {
		s.turns.passed[owner] = slices.DeleteFunc(slices.Clone(s.turns.all), func(one *turn) bool { return one.came == 0 || one.lost || one.granted })
	}
}

// waits reports whether it waits still, and has not lost its place.
func (s *Sim) waits(t *turn) bool { return !t.lost && !t.gaveUp && slices.Contains(s.turns.all, t) }

// endTurn ends the turn of one that has its verdict. One that was granted has passed nobody who came
// before, and a TryLock nobody at all.
func (s *Sim) endTurn(h *held, got bool) {
	if h.names[0] != fair {
		return
	}
	i := slices.IndexFunc(s.turns.all, func(one *turn) bool { return one.h == h })
	var mine *turn
	if i >= 0 {
		mine = s.turns.all[i]
		mine.gaveUp = !got
		s.turns.all = slices.Delete(s.turns.all, i, i+1)
	}
	if !got || h.within != nil {
		return
	}
	owner := h.hold.Owner()
	passed := s.turns.passed[owner]
	delete(s.turns.passed, owner)
	if mine == nil && !h.once || mine != nil && (mine.lost || mine.came == 0) {
		return // since when it waits is not known
	}
	for _, other := range passed {
		if other == mine || mine != nil && other.came > mine.came {
			continue
		}
		s.after(settled, other.h.user.p, func() { // it may be about to give up
			if !other.gaveUp && !other.lost {
				s.fail("%s has %s as %s, and %s waits for longer", h.user.name, fair, owner, other.h.user.name)
			}
		})
	}
}

// lives reports whether an owner is of a process that lives.
func (s *Sim) lives(owner string) bool {
	return slices.ContainsFunc(s.processes, func(p *process) bool {
		return !p.dead && slices.ContainsFunc(p.sites, func(x *site) bool { return strings.HasPrefix(owner, x.engine.ID()+":") })
	})
}

// leaves reports whether an owner in a queue, which nobody wants any more, has to leave it: its process
// lives, and no server has refused its leave for good, or brought it back.
func (s *Sim) leaves(owner string) bool {
	return s.lives(owner) && s.denied[owner] == 0 && !s.ghosts[owner]
}

// purged checks that nobody has lost the place in a queue who could have kept it. All waiters of a
// process that shuts down have given up; a place that cannot be left while its slot moves stays.
func (s *Sim) purged(key, owner string) {
	s.tell("%s has lost its place for %s", owner, key)
	s.turns.lose(owner)
	for _, p := range s.processes {
		for _, x := range p.sites {
			if strings.HasPrefix(owner, x.engine.ID()+":") && !s.late[owner] && !s.ghosts[owner] && s.denied[owner] == 0 && !p.dead && p.refuses == 0 && p.awake() && !x.closed && s.healthy() && s.now.Sub(s.quiet) > recovers+s.lease && s.barredSince(key) > 5*time.Second {
				s.fail("%s waits for %s, and has lost its place", owner, key)
			}
		}
	}
}

// patienceFor is how much longer a name may stay free because it is the turn of somebody who has
// died: each has some seconds, or, where nobody can know whether they hear, their time in the
// queue. One whose turn it is, who hears that and stays, lives.
func (s *Sim) patienceFor(name string, since freed) time.Duration {
	switch {
	case name == spin:
		return s.backoff.longest() * 3 / 2
	case since.silent:
		return lock.LongestSleepMissed * 5 / 4
	case name != fair:
		return 0
	case since.heard && since.first != "" && since.first == s.server.First(fair):
		return settled
	case s.cluster != nil && !s.cluster.sharded:
		return time.Hour
	}
	return 30 * time.Second
}

// freed is when a name became free, and how.
type freed struct {
	at        clock.Instant
	announced bool
	heard     bool   // the message, by whom it is for
	first     string // in the queue of the fair lock
	silent    bool   // nobody in the front of its queue waits
}

// frontIsSilent reports whether nobody in the front of the engines that wait for a name is alive, but for places of
// engines in which nobody waits: a late join has made them, the server refused to take them back, or a failover has
// brought them back. Then somebody behind them looks, sooner or later.
func (s *Sim) frontIsSilent(name string) bool {
	engines := s.server.WaitersFor(name)
	return len(engines) >= s.front && s.front > 0 && !slices.ContainsFunc(engines[:s.front], func(engine string) bool {
		return slices.ContainsFunc(s.processes, func(p *process) bool {
			waits := slices.ContainsFunc(p.users, func(u *user) bool { return u.waits == name })
			return !p.dead && p.engine().ID() == engine && (waits || !s.latePlaces[engine+" "+name])
		})
	})
}

// limit is how long it may stay so. A head that knows of an expiry sleeps until then,
// counted from when it was told, which a storm may have delayed. One that polls does not.
func (f freed) limit(name string) time.Duration {
	if f.announced || name == spin {
		return wakeUp
	}
	return wakeUp + slowest
}
