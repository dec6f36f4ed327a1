package watchdog

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/script"
)

func TestNowRenewsOneHoldAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	holds := l.holds(3, 10*time.Second)
	l.r.Now(&holds[1].m)
	s := l.take(1)[0]
	if len(s.chunk.list) != 1 || s.chunk.list[0].Key != "k1" {
		t.Fatalf("sent %v", s.chunk.list)
	}
	l.answer(s, all(script.Renewed))
	if holds[1].times() != 1 || holds[0].notified+holds[2].notified != 0 {
		t.Error("not it alone was told")
	}
	l.advance(10 * time.Second) // the others', and perhaps its own next one
	n := 0
	for _, s := range l.take(len(l.flying())) {
		n += len(s.chunk.list)
	}
	if n != 2 && n != 3 {
		t.Errorf("%d locks in the next renewals", n)
	}
}

// What made the caller ask may have happened after the renewal that is out was
// executed: another one follows its answer, one for however many calls.
func TestNowDuringARenewalIsFollowedByOneMore(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	h := l.hold(1, 10*time.Second)
	l.advance(10 * time.Second)
	for range 5 {
		l.r.Now(&h.m)
	}
	l.answer(l.take(1)[0], all(script.Renewed))
	l.answer(l.take(1)[0], all(script.Renewed))
	l.settle()
	if n := l.sent(); n != 2 || h.times() != 2 {
		t.Errorf("%d scripts, renewed %d times, want 2", n, h.times())
	}
}

func TestNowOfAnEndedHoldSendsNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	h := l.hold(1, 10*time.Second)
	h.end()
	l.r.Now(&h.m)
	if l.sent() != 0 {
		t.Error("sent")
	}
	l.empty()
}

// Soon gathers: many holds that are to be looked at share their scripts, and one that is
// asked for again and again is not put off.
func TestSoonGathersTheHoldsOfAQuantum(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var holds []*subject
	for i := range 100 {
		h := l.subject(i)
		if i%2 == 0 { // the others are nowhere, as a hold with a fixed lease is
			l.r.Join(&h.m, l.clock.Now().Add(10*time.Second))
		}
		holds = append(holds, h)
	}
	for range 4 {
		for _, h := range holds {
			l.r.Soon(&h.m)
		}
		l.advance(l.r.quantum / 4)
	}
	sent := l.take(2)
	if n := len(sent[0].chunk.list) + len(sent[1].chunk.list); n != 100 {
		t.Errorf("%d locks in two scripts, want 100", n)
	}
	for _, s := range sent {
		l.answer(s, all(script.Renewed))
	}
	for _, h := range holds {
		if h.times() != 1 {
			t.Errorf("hold %d was renewed %d times", h.n, h.times())
		}
	}
}

// As with Now, what is out may have been executed before.
func TestSoonDuringARenewalIsFollowedByOneMore(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	h := l.hold(1, 10*time.Second)
	l.advance(10 * time.Second)
	l.r.Soon(&h.m)
	l.r.Soon(&h.m)
	l.answer(l.take(1)[0], all(script.Renewed))
	l.answer(l.take(1)[0], all(script.Renewed))
	l.settle()
	if n := l.sent(); n != 2 {
		t.Errorf("%d scripts, want 2", n)
	}
}

func TestSoonAfterCloseDoesNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	h := l.subject(1)
	l.r.Close()
	l.r.Soon(&h.m)
	l.advance(time.Second)
	if n := l.sent(); n != 0 {
		t.Errorf("%d scripts", n)
	}
}

// All: those in cohorts and those that wait for a retry are renewed at once, those
// in flight are not sent twice.
func TestAllRenewsEverybodyOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	flying := l.hold(0, time.Second)
	l.advance(time.Second)
	waiting := l.hold(1, time.Second)
	l.advance(time.Second)
	out := l.take(2)
	l.put(out[0])
	l.fail(out[1], errAny)
	var holds []*subject
	for i := range 100 {
		holds = append(holds, l.hold(2+i, time.Duration(1+i%20)*time.Second))
	}
	before := l.sent()
	l.r.All()
	l.settle()
	n := 0
	for _, s := range l.take(len(l.flying())) {
		n += len(s.chunk.list)
		l.answer(s, all(script.Renewed))
	}
	if n != 102 {
		t.Errorf("%d locks are out, want 102", n)
	}
	if sent := l.sent() - before; sent != 21 {
		t.Errorf("%d scripts, want one for each of 20 cohorts and the retry", sent)
	}
	for _, h := range append(holds, flying, waiting) {
		if h.times() != 1 {
			t.Errorf("hold %d was renewed %d times", h.n, h.times())
		}
	}
	l.clock.Step(time.Hour) // of no importance here
	l.advance(9 * time.Second)
	l.r.All()
	l.settle()
	n = 0
	for _, s := range l.take(len(l.flying())) {
		n += len(s.chunk.list)
	}
	if n != 102 {
		t.Errorf("%d locks are out the second time, want 102", n)
	}
}

func TestResumeSendsWhatWaitsAndNothingElse(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.holds(1, time.Second)
	l.advance(time.Second)
	l.fail(l.take(1)[0], errAny)
	l.holds(1, 2*time.Second)
	l.holds(1, 10*time.Second)
	before := l.sent()
	l.r.Resume()
	l.r.Resume()
	if n := l.sent() - before; n != 1 {
		t.Errorf("%d scripts, want 1", n)
	}
	l.answer(l.take(1)[0], all(script.Renewed))
	l.r.Resume()
	if n := l.sent() - before; n != 1 {
		t.Errorf("%d scripts after the answer, want 1", n)
	}
}

func TestCloseForgetsEverybody(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	holds := l.holds(3, time.Second)
	l.advance(time.Second)
	holds = append(holds, l.hold(3, time.Second))
	l.advance(time.Second)
	out := l.take(2)
	l.fail(out[1], errAny)
	holds = append(holds, l.hold(4, 5*time.Second))
	sent := l.sent()
	l.r.Close()
	l.empty()
	l.answer(out[0], all(script.Gone))
	for _, h := range holds {
		l.r.Now(&h.m)
		l.r.Join(&h.m, l.clock.Now())
		l.r.Leave(&h.m)
	}
	l.r.All()
	l.r.Resume()
	l.clock.Advance(time.Hour)
	l.r.Close()
	for _, h := range holds {
		if h.notified != 0 || !h.live() {
			t.Errorf("hold %d: told %d times, live %v", h.n, h.notified, h.live())
		}
	}
	if l.sent() != sent {
		t.Errorf("%d scripts were sent after Close", l.sent()-sent)
	}
	l.empty()
}
