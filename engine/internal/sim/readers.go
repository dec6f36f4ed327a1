package sim

import (
	"errors"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/clock"
)

// Any number may read at the same time. So a reader is refused only because of a writer: one that has the lock,
// or one of its own process, with which readers take turns. It waits because of one, or for some milliseconds
// at the end of a turn of readers.

// reading is what is known of those who read.
type reading struct {
	wrote   clock.Instant // when the server last had a writer
	removed clock.Instant // when others last removed one
	open    map[*held]opened
}

// opened is since when nothing is in the way of a reader that waits, and how long that may take.
type opened struct {
	at    clock.Instant
	limit time.Duration
}

// noteWriter notes whether the server has a writer just now.
func (s *Sim) noteWriter() {
	if v := s.server.Get(rw); v != nil && v.Fields["mode"] != "read" {
		s.reading.wrote = s.now
	}
}

// isReader reports whether it reads, as any other does.
func (h *held) isReader() bool {
	return h.reads && h.names[0] == rw && h.within == nil && h.beside == nil && !h.quorum
}

// checkRefusal: a TryLock of a reader is not refused while only readers have the lock.
func (h *held) checkRefusal(err error) {
	s := h.user.p.sim
	if !h.isReader() || !h.once || !errors.Is(err, engine.ErrHeld) || s.reading.wrote >= h.asked || h.asked.Sub(s.reading.removed) < time.Second {
		return
	}
	for _, other := range s.holds { // its process does not know that this was removed
		if other.writes(h.user.p) && other.robbed() {
			return
		}
	}
	s.fail("%s is refused %s, and nobody writes: %v", h.user.name, rw, err)
}

// writes reports whether it is a writer of the process, which has the lock or asks for it.
func (h *held) writes(p *process) bool {
	return h.user.p == p && h.names[0] == rw && !h.reads && !h.quorum
}

// hasWriter reports whether somebody of the process writes, or wants to.
func (p *process) hasWriter() bool {
	for _, h := range p.sim.holds {
		if h.writes(p) {
			return true
		}
	}
	for _, u := range p.users {
		if u.wants != nil && u.wants.writes(p) {
			return true
		}
	}
	return false
}

// checkReaders: a reader that waits has the lock soon, if only readers have it and no writer of its
// process is in its way.
func (s *Sim) checkReaders() {
	v := s.server.Get(rw)
	writes := v != nil && v.Fields["mode"] != "read" || s.barred(rw) || s.now < s.excused[rw].Add(wakeUp)
	if writes {
		clear(s.reading.open)
		return
	}
	for _, p := range s.processes {
		for _, u := range p.users {
			h := u.wants
			if h == nil || h.once || !h.isReader() {
				continue
			}
			since, was := s.reading.open[h]
			switch {
			case p.dead || p.refuses != 0 || !p.awake() || p.hasWriter():
				delete(s.reading.open, h)
			case !was && (h.asked == s.now || s.announced[rw] == s.now):
				s.reading.open[h] = opened{s.now, wakeUp}
			case !was:
				s.reading.open[h] = opened{s.now, wakeUp + slowest}
			case s.now.Sub(since.at) > since.limit:
				s.fail("%s waits to read %s for %v, and nobody writes", u.name, rw, s.now.Sub(since.at))
			}
		}
	}
}
