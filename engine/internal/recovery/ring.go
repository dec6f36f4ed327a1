package recovery

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/internal/clock"
)

const (
	// RememberFor is how long a release is remembered while its server can be reached. In a
	// failover on command the old primary goes on until the sentinels have all other
	// replicas follow the new one, about a second for each.
	RememberFor = 10 * time.Second
	// rememberMost bounds what is remembered of one server, give or take a page.
	rememberMost = 1 << 16
)

// Release is one that a server has answered.
type Release struct {
	Name string
	ID   int64         // of the owner
	At   clock.Instant // of the answer
	End  clock.Instant // of its MinHold; 0 without one
	Kind kind.Kind
}

// rest is what is left of its MinHold.
func (r *Release) rest(now clock.Instant) time.Duration {
	if r.End == 0 {
		return 0
	}
	return r.End.Sub(now)
}

// ring are the releases of one server, about in the order of their answers. A page that is
// dropped is used again, so a steady stream of releases makes no garbage.
type ring struct {
	first, last *page // none of them is empty
	n           int
	spare       *page
}

type page struct {
	next *page
	n    int
	list [256]Release
}

func (p *page) newest() *Release { return &p.list[p.n-1] }

// newest is the latest of all, which are at least one.
func (s *ring) newest() *Release { return s.last.newest() }

// push adds a release, and may drop what is older than keep.
func (s *ring) push(r *Release, keep time.Duration) {
	if s.last == nil || s.last.n == len(s.last.list) {
		s.turn(r.At, keep)
	}
	s.last.list[s.last.n] = *r
	s.last.n++
}

// turn begins a page, and drops the oldest ones if they are too old or too many.
func (s *ring) turn(now clock.Instant, keep time.Duration) {
	for s.first != nil && (now.Sub(s.first.newest().At) > keep || s.n*len(s.first.list) >= rememberMost) {
		s.spare, s.first = s.first, s.first.next
		s.n--
	}
	p := s.spare
	s.spare = nil
	if p == nil {
		p = new(page)
	}
	*p = page{}
	s.append(p)
}

// append adds a page that has no next one.
func (s *ring) append(p *page) {
	if s.first == nil {
		s.first = p
	} else {
		s.last.next = p
	}
	s.last = p
	s.n++
}

// takeOut removes what has moved to another server. It returns what of that is due there:
// what is not older than keep, counted from the latest of all.
func (s *ring) takeOut(keep time.Duration, moved func(*Release) bool) (due []Release) {
	since := s.newest().At.Add(-keep)
	all := s.first
	s.first, s.last, s.n = nil, nil, 0
	for p := all; p != nil; {
		next := p.next
		n := 0
		for i := range p.list[:p.n] {
			r := &p.list[i]
			switch {
			case !moved(r):
				p.list[n] = *r
				n++
			case r.At >= since:
				due = append(due, *r)
			}
		}
		clear(p.list[n:])
		if p.n, p.next = n, nil; n > 0 {
			s.append(p)
		}
		p = next
	}
	return due
}

// prepend puts older ones in front, which are at least one.
func (s *ring) prepend(older *ring) {
	if older.last.next = s.first; s.first == nil {
		s.last = older.last
	}
	s.first = older.first
	s.n += older.n
}

// forgetAt says when to look at a server again whose latest release was answered at an
// instant: never (0), and nothing need be remembered any more, if the server has been there,
// and has released nothing, for so long. While nobody can be asked nothing is forgotten: the
// failover may take its time.
func forgetAt(latest clock.Instant, keep time.Duration, up bool, now clock.Instant) clock.Instant {
	at := latest.Add(keep)
	if up && at <= now {
		return 0
	}
	return max(at, now.Add(time.Second))
}
