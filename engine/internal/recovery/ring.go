package recovery

import (
	"slices"
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
	pages []*page // none of them is empty
}

type page struct {
	n    int
	list [256]Release
}

func (p *page) newest() *Release { return &p.list[p.n-1] }

// newest is the latest of all, which are at least one.
func (s *ring) newest() *Release { return s.pages[len(s.pages)-1].newest() }

// push adds a release, and may drop what is older than keep.
func (s *ring) push(r *Release, keep time.Duration) {
	if n := len(s.pages); n == 0 || s.pages[n-1].n == len(s.pages[n-1].list) {
		s.turn(r.At, keep)
	}
	last := s.pages[len(s.pages)-1]
	last.list[last.n] = *r
	last.n++
}

// turn begins a page, and drops the oldest ones if they are too old or too many.
func (s *ring) turn(now clock.Instant, keep time.Duration) {
	var p *page
	old := 0
	for left := len(s.pages); left > 0 && (now.Sub(s.pages[old].newest().At) > keep || left*len(p.list) >= rememberMost); left-- {
		p = s.pages[old]
		old++
	}
	if p == nil {
		p = new(page)
	}
	*p = page{}
	s.pages = append(slices.Delete(s.pages, 0, old), p)
}

// takeOut removes what has moved to another server. It returns what of that is due there:
// what is not older than keep, counted from the latest of all.
func (s *ring) takeOut(keep time.Duration, moved func(*Release) bool) (due []Release) {
	since := s.newest().At.Add(-keep)
	s.pages = slices.DeleteFunc(s.pages, func(p *page) bool {
		p.n = len(slices.DeleteFunc(p.list[:p.n], func(r Release) bool {
			out := moved(&r)
			if out && r.At >= since {
				due = append(due, r)
			}
			return out
		}))
		return p.n == 0
	})
	return due
}

// prepend puts older ones in front.
func (s *ring) prepend(older *ring) { s.pages = append(older.pages, s.pages...) }

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
