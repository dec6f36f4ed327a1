package recovery

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// full is how many releases a page has.
const full = len(page{}.list)

// fill pushes n releases, answered at one instant.
func (s *ring) fill(n int, at clock.Instant, keep time.Duration) {
	for range n {
		s.push(&Release{Name: "x", At: at}, keep)
	}
}

// count counts the releases and the pages that are there.
func (s *ring) count() (releases, pages int) {
	for _, p := range s.pages {
		releases += p.n
	}
	return releases, len(s.pages)
}

// A page that is begun is the occasion to drop whole pages.
func TestWhatIsDroppedWhenAPageIsTurned(t *testing.T) {
	t.Parallel()
	const keep = 10 * time.Second
	start := clock.Instant(time.Hour)
	for name, test := range map[string]struct {
		pages int           // full ones, answered at the start
		later time.Duration // when one more is answered
		left  int           // releases
	}{
		"the first":                 {0, 0, 1},
		"one page":                  {1, 0, full + 1},
		"as old as may be":          {3, keep, 3*full + 1},
		"too old":                   {3, keep + 1, 1},
		"one less than are kept":    {rememberMost/full - 1, 0, rememberMost - full + 1},
		"as many as are kept":       {rememberMost / full, 0, rememberMost - full + 1},
		"more than are kept":        {rememberMost/full + 10, 0, rememberMost - full + 1},
		"many, and all of them old": {rememberMost / full, time.Minute, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s ring
			s.fill(test.pages*full, start, keep)
			s.fill(1, start.Add(test.later), keep)
			if n, pages := s.count(); n != test.left || s.newest().At != start.Add(test.later) {
				t.Errorf("%d releases, want %d; in %d pages", n, test.left, pages)
			}
		})
	}
}

// It is the newest of a page that counts: the page has something to be kept for.
func TestAPageIsAsOldAsItsNewest(t *testing.T) {
	t.Parallel()
	const keep = 10 * time.Second
	var s ring
	s.fill(full-1, 0, keep)
	s.fill(1, clock.Instant(5*time.Second), keep)
	s.fill(1, clock.Instant(15*time.Second), keep)
	if n, _ := s.count(); n != full+1 {
		t.Errorf("%d releases are left", n)
	}
}

// A page that was dropped has the next releases, and none of its own.
func TestADroppedPageIsUsedAgain(t *testing.T) {
	t.Parallel()
	var s ring
	s.fill(full, 0, time.Second)
	old := s.pages[0]
	s.fill(1, clock.Instant(time.Minute), time.Second)
	if s.pages[0] != old || old.n != 1 || old.list[1] != (Release{}) {
		t.Error("the page is not used again, or not empty")
	}
}

// Of a cluster's server only some slots may go to another.
func TestReleasesOfSomeSlotsAreTakenOut(t *testing.T) {
	t.Parallel()
	const keep = 5 * time.Second
	var s ring
	for i := range 1000 {
		s.push(&Release{ID: int64(i), At: clock.Instant(time.Duration(i) * 6 * time.Millisecond)}, keep)
	}
	seen := 0
	moved := s.takeOut(keep, func(r *Release) bool { seen++; return r.ID%3 == 0 })
	if seen != 1000 || len(s.pages) != 4 {
		t.Errorf("%d seen, %d pages", seen, len(s.pages))
	}
	for _, r := range moved {
		if r.ID%3 != 0 || r.At < clock.Instant((999*6-5000)*time.Millisecond) {
			t.Errorf("%d, of %v, was taken out", r.ID, r.At)
		}
	}
	if len(moved) != 278 { // of the last five seconds
		t.Errorf("%d moved", len(moved))
	}
	var next ring
	next.push(&Release{ID: 2000}, keep)
	next.prepend(&s)
	last, n := int64(-1), 0
	for _, p := range next.pages {
		for _, r := range p.list[:p.n] {
			if r.ID <= last || r.ID%3 == 0 {
				t.Fatalf("%d behind %d", r.ID, last)
			}
			last = r.ID
			n++
		}
	}
	if n != 667 || next.newest().ID != 2000 || len(next.pages) != 5 {
		t.Errorf("%d are left, in %d pages", n, len(next.pages))
	}
	if moved := next.takeOut(keep, func(*Release) bool { return true }); len(next.pages) != 0 || len(moved) == 0 {
		t.Error("something is left")
	}
}

// What a route change or a successor makes due: what has moved, as far as it is not too old.
// What is too old is forgotten; what has not moved stays, however old it is.
func TestWhichPastReleasesAreDue(t *testing.T) {
	t.Parallel()
	const keep = 10 * time.Second
	const moved, stays = 'm', 's'
	for name, test := range map[string]struct {
		which     string          // moved, or stays
		at        []time.Duration // of the answers
		due, left []int64         // their numbers
	}{
		"a successor":                {"mmm", []time.Duration{0, 1, 2}, []int64{0, 1, 2}, nil},
		"nothing has moved":          {"sss", []time.Duration{0, 1, 2}, nil, []int64{0, 1, 2}},
		"some have":                  {"sms", []time.Duration{0, 1, 2}, []int64{1}, []int64{0, 2}},
		"just not too old":           {"mm", []time.Duration{0, keep}, []int64{0, 1}, nil},
		"too old":                    {"mm", []time.Duration{0, keep + 1}, []int64{1}, nil},
		"old, and it stays":          {"sm", []time.Duration{0, time.Hour}, []int64{1}, []int64{0}},
		"old against one that stays": {"ms", []time.Duration{0, time.Hour}, nil, []int64{1}},
		"not in order":               {"mmm", []time.Duration{20 * time.Second, 5 * time.Second, 16 * time.Second}, []int64{0, 2}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s ring
			for i, at := range test.at {
				s.push(&Release{ID: int64(i), At: clock.Instant(at)}, keep)
			}
			var due, left []int64
			for _, r := range s.takeOut(keep, func(r *Release) bool { return test.which[r.ID] == moved }) {
				due = append(due, r.ID)
			}
			for _, p := range s.pages {
				for _, r := range p.list[:p.n] {
					left = append(left, r.ID)
				}
				if rest := p.list[p.n:]; len(rest) > 0 && rest[0] != (Release{}) {
					t.Error("what was taken out is still pointed to")
				}
			}
			if !equal(due, test.due) || !equal(left, test.left) {
				t.Errorf("due %v, want %v; left %v, want %v", due, test.due, left, test.left)
			}
		})
	}
}

func TestWhenAServerIsForgotten(t *testing.T) {
	t.Parallel()
	const keep = 10 * time.Second
	at := func(d time.Duration) clock.Instant { return clock.Instant(time.Hour + d) }
	for name, test := range map[string]struct {
		latest time.Duration
		up     bool
		now    time.Duration
		want   clock.Instant // 0: forgotten
	}{
		"its time is over":                {0, true, keep, 0},
		"long since":                      {0, true, time.Minute, 0},
		"not yet":                         {time.Second, true, keep, at(keep + time.Second)},
		"it has released something since": {8 * time.Second, true, keep, at(18 * time.Second)},
		"hardly, so not at once":          {1, true, keep, at(keep + time.Second)},
		"it is away":                      {0, false, keep, at(keep + time.Second)},
		"it is away for long":             {0, false, time.Minute, at(time.Minute + time.Second)},
		"it is away, and not yet":         {8 * time.Second, false, keep, at(18 * time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := forgetAt(at(test.latest), keep, test.up, at(test.now)); got != test.want {
				t.Errorf("%v, want %v", time.Duration(got), time.Duration(test.want))
			}
		})
	}
}

func TestTheRestOfAMinHold(t *testing.T) {
	t.Parallel()
	now := clock.Instant(time.Hour)
	for name, test := range map[string]struct {
		end  clock.Instant
		want time.Duration
	}{
		"without one": {0, 0},
		"some":        {now.Add(time.Second), time.Second},
		"over":        {now.Add(-time.Second), -time.Second},
	} {
		if got := (&Release{End: test.end}).rest(now); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
