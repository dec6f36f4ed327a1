package wheel

import (
	"slices"
	"testing"

	"github.com/pawl-lock/pawl/internal/clock"
)

func TestNearRingAgreesWithASortedList(t *testing.T) {
	t.Parallel()
	rng := seeded(t)
	var ring nearRing
	ring.reset()
	var due timerList
	due.reset()
	now := int64(rng.Int64N(1 << 40))
	var want []int64
	for range 50_000 {
		if rng.IntN(3) > 0 {
			grain := now + 1 + rng.Int64N(nearSpan-1)
			tm := new(Timer)
			ring.push(tm, grain)
			want = append(want, grain)
			continue
		}
		slices.Sort(want)
		next, ok := ring.next(now)
		if ok != (len(want) > 0) || ok && next != want[0] {
			t.Fatalf("next(%d) = %d, %v; want %v", now, next, ok, want)
		}
		to := now + rng.Int64N(40)
		if rng.IntN(50) == 0 {
			to = now + rng.Int64N(10_000)
		}
		expired, _ := slices.BinarySearch(want, to+1)
		ring.turn(now, to, &due)
		for i := range expired {
			if due.empty() {
				t.Fatalf("turn(%d, %d) gave %d timers, want %d", now, to, i, expired)
			}
			due.pop()
		}
		if !due.empty() {
			t.Fatalf("turn(%d, %d) gave more than %d timers", now, to, expired)
		}
		want, now = want[expired:], to
	}
}

func TestCancelledTimersDoNotTurnTheNearRing(t *testing.T) {
	t.Parallel()
	var ring nearRing
	ring.reset()
	const now = 1_000_003
	timers := make([]Timer, nearSpan)
	for i := range timers[1:] {
		ring.push(&timers[i+1], now+int64(i+1))
	}
	for i := range timers[1 : nearSpan-1] {
		timers[i+1].unlink()
	}
	if grain, ok := ring.next(now); grain != now+nearSpan-1 || !ok {
		t.Errorf("next = %d, %v: one timer is left, at %d", grain, ok, now+nearSpan-1)
	}
	timers[nearSpan-1].unlink()
	if grain, ok := ring.next(now); ok {
		t.Errorf("next = %d: no timer is left", grain)
	}
}

func TestNearRingTurnsInOrder(t *testing.T) {
	t.Parallel()
	rng := seeded(t)
	var ring nearRing
	ring.reset()
	var due timerList
	due.reset()
	const start = 1_000_003
	for range 1000 {
		tm := new(Timer)
		grain := start + 1 + rng.Int64N(nearSpan-1)
		tm.at = clock.Instant(grain)
		ring.push(tm, grain)
	}
	ring.turn(start, start+nearSpan, &due)
	n, last := 0, clock.Instant(0)
	for ; !due.empty(); n++ {
		tm := due.pop()
		if tm.at < last {
			t.Fatalf("%d after %d", tm.at, last)
		}
		last = tm.at
	}
	if n != 1000 {
		t.Errorf("%d timers", n)
	}
}

func TestTimerListMovesWholeAndUnlinksAnywhere(t *testing.T) {
	t.Parallel()
	var a, b timerList
	a.reset()
	b.reset()
	a.moveTo(&b)
	if !a.empty() || !b.empty() {
		t.Fatal("moving nothing left something")
	}
	timers := make([]Timer, 5)
	for i := range timers[:3] {
		a.push(&timers[i])
	}
	b.push(&timers[3])
	a.moveTo(&b)
	b.push(&timers[4])
	timers[1].unlink()
	if !a.empty() || timers[1].linked() {
		t.Error("still linked")
	}
	for _, i := range []int{3, 0, 2, 4} {
		if got := b.pop(); got != &timers[i] {
			t.Fatalf("want timer %d", i)
		}
	}
	if !b.empty() {
		t.Error("too many")
	}
}
