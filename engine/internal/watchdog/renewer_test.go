package watchdog

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
)

// Ten thousand holds taken in one moment are renewed over a fifth of the period, and
// as evenly as chance has it.
func TestRenewalsOfHoldsTakenTogetherAreSpreadEvenly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		join     func(*Renewer, *Member, clock.Instant)
		from, to time.Duration
	}{
		"the first ones": {(*Renewer).JoinFirst, lease / 6, lease / 3},
		"the next ones":  {(*Renewer).JoinNext, lease * 9 / 30, lease * 11 / 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			const n = 10_000
			now := l.clock.Now()
			for i := range n {
				c.join(l.r, &l.subject(i).m, now)
			}
			slots := float64(c.to-c.from) / float64(l.r.quantum)
			total := 0
			l.r.mu.Lock()
			defer l.r.mu.Unlock()
			for _, g := range l.r.mu.cohorts {
				wait := g.due.Sub(now)
				if wait < c.from-l.r.quantum || wait > c.to {
					t.Errorf("a cohort is due after %v, want %v to %v", wait, c.from, c.to)
				}
				// The first and the last slot are cut.
				whole := wait > c.from && wait < c.to-l.r.quantum
				if got := float64(len(g.members)); whole && (got < 0.7*n/slots || got > 1.3*n/slots) {
					t.Errorf("%v holds are due after %v, want about %.0f", got, wait, n/slots)
				}
				total += len(g.members)
			}
			if total != n || float64(len(l.r.mu.cohorts)) < slots {
				t.Errorf("%d holds in %d cohorts", total, len(l.r.mu.cohorts))
			}
		})
	}
}

// In a cluster a script has the locks of one slot only, so those of a slot gather: after
// a few rounds there is one script per slot and period, evenly spread over the period,
// and no hold ever waits for much longer than a period, or for much less than half of it.
func TestHoldsOfASlotGatherInOneScript(t *testing.T) {
	t.Parallel()
	const slots, each = 800, 6
	l := newLab(t)
	l.r.slotted.Store(true)
	third := lease / 3
	step := l.r.quantum
	play := func(d time.Duration, add func(i int)) (scripts []int) {
		for i := range int(d / step) {
			add(i)
			l.advance(step)
			out := l.take(len(l.flying()))
			for _, s := range out {
				l.answer(s, all(script.Renewed))
			}
			scripts = append(scripts, len(out))
		}
		return scripts
	}
	var holds []*subject
	play(third, func(i int) { // taken over one period, those of a slot at different times
		for n := range slots * each {
			if n%int(third/step) == i {
				s := l.subject(n)
				s.m.slot = uint16(n % slots * 17)
				l.r.JoinFirst(&s.m, l.clock.Now())
				holds = append(holds, s)
			}
		}
	})
	none := func(int) {}
	play(4*third, none)
	total := 0
	for i, n := range play(2*third, none) {
		total += n
		if even := slots * int(step) / int(third); n > 3*even {
			t.Errorf("%d scripts in step %d, %d would be even", n, i, even)
		}
	}
	if total != 2*slots {
		t.Errorf("%d scripts in two periods for the %d holds of %d slots", total, slots*each, slots)
	}
	for _, h := range holds {
		for i, at := range h.renewed[1:] {
			if wait := at.Sub(h.renewed[i]); wait < third*2/5-step || wait > third*11/10+step {
				t.Fatalf("a hold was renewed after %v, the period is %v", wait, third)
			}
		}
	}
}

// A crowd in one slot fills its scripts anyway: it is not renewed all at once, which
// would block its node.
func TestGroupOfOneSlotIsSpread(t *testing.T) {
	t.Parallel()
	const many = 20_000
	l := newLab(t)
	l.r.slotted.Store(true)
	for n := range many {
		s := l.subject(n)
		s.m.slot = 7
		l.r.JoinFirst(&s.m, l.clock.Now())
	}
	most := 0
	for range int(lease / l.r.quantum) { // three periods
		l.advance(l.r.quantum)
		now := 0
		for _, s := range l.take(len(l.flying())) {
			now += len(s.chunk.list)
			l.answer(s, all(script.Renewed))
		}
		most = max(most, now)
	}
	// Spread over a fifth of a period they would be 2,500 at once.
	if most > many/5 {
		t.Errorf("%d of %d holds were renewed in one moment", most, many)
	}
}

func TestCohortGoesOutInChunks(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	holds := l.holds(200, 10*time.Second)
	if l.sent() != 0 {
		t.Fatal("sent before it was due")
	}
	l.advance(10 * time.Second)
	seen := make(map[string]int)
	for i, s := range l.take(4) {
		if want := min(64, 200-64*i); len(s.chunk.list) != want {
			t.Errorf("chunk %d has %d locks, want %d", i, len(s.chunk.list), want)
		}
		for _, one := range s.chunk.list {
			seen[one.Key]++
		}
		l.answer(s, all(script.Renewed))
	}
	if len(seen) != 200 {
		t.Errorf("%d of 200 locks were renewed", len(seen))
	}
	for _, h := range holds {
		if h.times() != 1 || h.Until() != l.clock.Now().Add(lease-margin) {
			t.Fatalf("hold %d: renewed %d times, until %v", h.n, h.times(), h.Until().Sub(l.clock.Now()))
		}
	}
}

var errBusy = &resp.ServerError{Code: "BUSY", Message: "BUSY"}

// failures are what can become of a script, other than an answer that fits.
var failures = map[string]func(l *lab, s *sending){
	"not sent":           func(l *lab, s *sending) { l.fail(s, resp.ErrNotSent) },
	"unknown":            func(l *lab, s *sending) { l.fail(s, resp.ErrOutcomeUnknown) },
	"refused":            func(l *lab, s *sending) { l.fail(s, errBusy) },
	"a number":           func(l *lab, s *sending) { l.reply(s, ":1\r\n") },
	"nothing":            func(l *lab, s *sending) { l.reply(s, "$-1\r\n") },
	"a status":           func(l *lab, s *sending) { l.reply(s, "+OK\r\n") },
	"an empty list":      func(l *lab, s *sending) { l.reply(s, "*0\r\n") },
	"too short a list":   func(l *lab, s *sending) { l.reply(s, "*1\r\n:1\r\n") },
	"too long a list":    func(l *lab, s *sending) { l.reply(s, "*3\r\n:1\r\n:1\r\n:1\r\n") },
	"a list of texts":    func(l *lab, s *sending) { l.reply(s, "*2\r\n$1\r\n1\r\n$1\r\n1\r\n") },
	"an error inside":    func(l *lab, s *sending) { l.reply(s, "*2\r\n:1\r\n-ERR\r\n") },
	"a nil inside":       func(l *lab, s *sending) { l.reply(s, "*2\r\n$-1\r\n:1\r\n") },
	"a list in the list": func(l *lab, s *sending) { l.reply(s, "*2\r\n:1\r\n*1\r\n:1\r\n") },
}

// A script that fails is sent again, until the lease is over; its holds hear nothing
// of it, nor do the other batches.
func TestFailureIsRetriedWithinTheLeaseAndReportedToNobody(t *testing.T) {
	t.Parallel()
	for name, fail := range failures {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			holds := l.holds(66, 10*time.Second)
			l.advance(10 * time.Second)
			whole := l.take(2)
			l.answer(whole[0], all(script.Renewed))
			const tries = 8 // the other batch is not due again before the last one
			left := holds[64:]
			s := whole[1]
			for try := range tries {
				fail(l, s)
				before := l.clock.Now()
				for len(l.flying()) == 0 {
					l.advance(10 * time.Millisecond)
					if wait := l.clock.Now().Sub(before); wait > lease/20 {
						t.Fatalf("try %d: not sent again after %v", try, wait)
					}
				}
				s = l.take(1)[0]
			}
			for _, h := range left {
				if !h.live() || h.notified != 0 {
					t.Fatalf("hold %d: live %v, told %d times", h.n, h.live(), h.notified)
				}
			}
			l.answer(s, all(script.Renewed))
			for _, h := range left {
				if h.times() != 1 {
					t.Errorf("hold %d: renewed %d times", h.n, h.times())
				}
			}
			for _, h := range holds[:64] {
				if h.notified != 1 {
					t.Errorf("hold %d of the other chunk: told %d times", h.n, h.notified)
				}
			}
			if bad := l.badRounds(); bad != tries {
				t.Errorf("%d failures were reported, want %d", bad, tries)
			}
		})
	}
}

func (l *lab) flying() []*sending {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out
}

func (l *lab) badRounds() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.rounds {
		if r.Err != nil {
			n++
		}
	}
	return n
}

// While the lane is down nothing is flooded, and each hold ends in its time.
func TestDownLaneIsAskedSeldomUntilTheHoldsEnd(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	holds := l.holds(3, 10*time.Second)
	l.lane(resp.ErrNotSent)
	l.advance(10 * time.Second)
	for range 20_00 {
		l.advance(10 * time.Millisecond)
		for _, h := range holds {
			if left := h.Until().Sub(l.clock.Now()); left <= 0 {
				eventually(t, "the hold ends in its time", func() bool { return !h.live() })
			} else if !h.live() {
				t.Fatalf("ended %v before its time", left)
			}
		}
	}
	if n := l.sent(); n < 12 || n > 40 {
		t.Errorf("%d tries in 17 s, want about 16", n)
	}
	l.empty()
}

// empty checks that the renewer remembers nobody.
func (l *lab) empty() {
	l.t.Helper()
	l.settle()
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	for _, c := range l.r.mu.cohorts {
		if n := len(c.members); n != 0 {
			l.t.Errorf("%d holds in a cohort", n)
		}
	}
	if n := l.r.mu.chunks.Len(); n != 0 {
		l.t.Errorf("%d chunks are left", n)
	}
}

func TestEachLockOfAScriptHasItsOwnOutcome(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	holds := l.holds(5, 10*time.Second)
	l.advance(10 * time.Second)
	codes := []int64{script.Renewed, script.Gone, script.WrongType, script.Refused, 99}
	l.answer(l.take(1)[0], func(i int) int64 { return codes[i] })
	for i, h := range holds {
		if renewed := h.times() == 1; renewed != (codes[i] == script.Renewed) {
			t.Errorf("code %d: renewed %v", codes[i], renewed)
		}
		if lost := codes[i] == script.Gone || codes[i] == script.WrongType; h.live() == lost || lost && (len(h.gone) != 1 || h.gone[0] != codes[i]) {
			t.Errorf("code %d: live %v, gone %v", codes[i], h.live(), h.gone)
		}
	}
	if bad := l.badRounds(); bad != 1 {
		t.Errorf("%d rounds were reported as failed, want the one with a refusal", bad)
	}
	// The two that were refused are asked for again soon, together or not.
	renewed := 0
	for range 100 {
		l.advance(10 * time.Millisecond)
		for _, s := range l.take(len(l.flying())) {
			renewed += len(s.chunk.list)
			l.answer(s, all(script.Renewed))
		}
	}
	if renewed != 2 || holds[3].times() != 1 || holds[4].times() != 1 {
		t.Errorf("%d renewals after the refusals, want 2", renewed)
	}
}

// A server that refuses key by key (it became a replica, say) is not asked as fast
// as it answers.
func TestRefusedLocksAreAskedForSeldom(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	h := l.hold(1, 10*time.Second)
	l.advance(10 * time.Second)
	for h.live() {
		for range 50 { // answers at once, many times in a row without time passing
			l.settle()
			out := l.flying()
			if len(out) == 0 {
				break
			}
			l.answer(l.take(1)[0], all(script.Refused))
		}
		l.advance(10 * time.Millisecond)
		if l.clock.Now() >= h.Until() {
			eventually(t, "the hold ends in its time", func() bool { return !h.live() })
		}
	}
	if n := l.sent(); n < 12 || n > 100 {
		t.Errorf("%d tries in 17 s", n)
	}
	l.empty()
}

var errAny = errors.New("any")

// A hold may leave at any moment; from then on it hears nothing, whatever comes.
func TestHoldThatLeftIsNotReported(t *testing.T) {
	t.Parallel()
	moments := map[string]func(l *lab, leave func()){
		"in its cohort": func(l *lab, leave func()) {
			leave()
			l.advance(10 * time.Second)
			l.answer(l.take(1)[0], all(script.Renewed))
		},
		"in flight": func(l *lab, leave func()) {
			l.advance(10 * time.Second)
			s := l.take(1)[0]
			l.put(s)
			leave()
			l.answer(l.take(1)[0], all(script.Gone))
		},
		"waiting to be retried": func(l *lab, leave func()) {
			l.advance(10 * time.Second)
			l.fail(l.take(1)[0], errAny)
			leave()
			l.advance(time.Second)
			s := l.take(1)[0]
			if n := len(s.chunk.list); n != 1 {
				l.t.Errorf("%d locks in the retry, want the other one's", n)
			}
			l.answer(s, all(script.Renewed))
		},
	}
	for name, moment := range moments {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			h, other := l.hold(1, 10*time.Second), l.hold(2, 10*time.Second)
			moment(l, h.end)
			if h.notified != 0 {
				t.Error("it was told")
			}
			if other.notified != 1 {
				t.Errorf("the other one was told %d times", other.notified)
			}
			// It may come back: a member belongs to its hold, not to one renewal.
			h.over = false
			l.r.Now(&h.m)
			l.settle()
			if len(l.flying()) != 1 {
				t.Error("it cannot come back")
			}
		})
	}
}

// put gives a script back that was taken to be looked at.
func (l *lab) put(s *sending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out = append(l.out, s)
}

// The time of a hold passes while its renewal is out, or waits to be sent again: it
// ends then, and an answer that comes later is not for it.
func TestHoldEndsInItsTimeWhateverTheNetworkDoes(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]bool{"in flight": false, "waiting to be retried": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			first := l.hold(1, 10*time.Second)
			l.advance(time.Second)
			second := l.hold(2, 9*time.Second)
			l.advance(9 * time.Second)
			s := l.take(1)[0]
			if fail {
				l.fail(s, errAny)
			} else {
				l.put(s)
			}
			for first.live() || second.live() {
				l.advance(5 * time.Millisecond)
				now := l.clock.Now()
				if fail {
					for _, s := range l.take(len(l.flying())) {
						l.fail(s, errAny)
					}
				}
				for _, h := range []*subject{first, second} {
					if now >= h.Until() {
						eventually(t, fmt.Sprintf("hold %d ends in its time", h.n), func() bool { return !h.live() })
						if late := h.overAt.Sub(h.Until()); late > 5*time.Millisecond {
							t.Errorf("hold %d ended %v late", h.n, late)
						}
					} else if !h.live() {
						t.Fatalf("hold %d ended early", h.n)
					}
				}
			}
			if !fail {
				l.answer(l.take(1)[0], all(script.Renewed))
			}
			if first.notified != 0 || second.notified != 0 {
				t.Error("an answer that came after the end was told")
			}
			l.advance(lease)
			l.empty()
		})
	}
}

// An answer that comes just before the end leaves a hold with little time. It is
// renewed within that, or it ends in its time.
func TestLateAnswerLeavesTimeForTheNextRenewal(t *testing.T) {
	t.Parallel()
	for _, left := range []time.Duration{10 * time.Second, 5 * time.Second, 2 * time.Second, time.Second, 600 * time.Millisecond, 300 * time.Millisecond, 100 * time.Millisecond, 10 * time.Millisecond} {
		t.Run(fmt.Sprint(left), func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			h := l.hold(1, 100*time.Millisecond)
			l.advance(100 * time.Millisecond)
			s := l.take(1)[0]
			h.until.Store(int64(s.at.Add(lease - margin)))
			l.clock.Advance(lease - margin - left)
			l.put(s)
			l.settle()
			l.answer(l.take(1)[0], all(script.Renewed))
			if !h.live() {
				t.Fatal("ended early")
			}
			for h.live() && len(l.flying()) == 0 {
				l.advance(time.Millisecond)
				if late := l.clock.Now().Sub(h.Until()); late > l.r.quantum {
					t.Fatalf("%v after its end nobody has looked", late)
				}
			}
			if left >= 2*l.r.quantum && !h.live() {
				t.Errorf("it had %v left, and was not renewed", left)
			}
		})
	}
}
