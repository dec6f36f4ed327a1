package topology

import (
	"math"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

const (
	// ExploreEvery is the least time between two looks at the layout; up to half as much
	// is added at random. After a failover every node answers MOVED to every command, and
	// one look is enough for all of them.
	ExploreEvery = 250 * time.Millisecond
	// exploreSeldom is that time once looks have found nothing new: a node that is dead
	// asks for looks all the time.
	exploreSeldom = time.Second
)

// Period is how often the layout is looked at without a reason. A cluster announces
// changes with MOVED, and sentinels publish them; a promotion by hand is announced by
// nobody.
func (k Kind) Period() time.Duration {
	switch k {
	case Cluster:
		return 30 * time.Second
	case Sentinel:
		return 10 * time.Second
	default:
		return time.Second
	}
}

// schedule says when the next search begins: not before one instant, and not after another,
// which is never the earlier one. It begins at the later one, unless something moves that to
// the earlier one:
//
//	the search has failed             it begins as soon as it may
//	refreshSoon: something is wrong   the same
//	refreshNow: something has changed the same, and it may sooner
//
// When it may depends on how many looks in a row have found nothing new.
type schedule struct {
	notBefore, notAfter clock.Instant
	idle                time.Duration // by which notBefore is later than after news
	fruitless           int           // searches since the latest news
}

// never is while a search is under way: when the next one may begin is not known yet.
const never = clock.Instant(math.MaxInt64)

// began notes that a search has begun. What asks for one from now on asks for the next.
func (s *schedule) began() { s.notBefore, s.notAfter = 0, never }

// refreshSoon asks for a search as soon as there may be one.
func (s *schedule) refreshSoon() { s.notAfter = s.notBefore }

// refreshNow is refreshSoon, and news: there may be one sooner.
func (s *schedule) refreshNow() {
	s.notBefore = s.notBefore.Add(-s.idle)
	s.idle, s.fruitless = 0, 0
	s.refreshSoon()
}

// outcome is what counts of a search for the time of the next one.
type outcome struct {
	news   bool          // others serve than before
	failed bool          // no layout was found
	period time.Duration // until the next search, if nobody asks for one
}

// ended notes the end of a search. luck returns a duration at random, up to its argument.
func (s *schedule) ended(now clock.Instant, o outcome, luck func(time.Duration) time.Duration) {
	asked := s.notAfter != never
	if s.fruitless++; o.news {
		s.fruitless = 0
	}
	due := now.Add(o.period - luck(o.period/4))
	s.notBefore = now.Add(ExploreEvery + luck(ExploreEvery/2))
	s.idle = min(ExploreEvery*time.Duration(max(0, s.fruitless-1)), exploreSeldom-ExploreEvery)
	s.idle = max(0, min(s.idle, due.Sub(s.notBefore)))
	s.notBefore = s.notBefore.Add(s.idle)
	s.notAfter = max(due, s.notBefore)
	if asked || o.failed {
		s.refreshSoon()
	}
}
