package quorum

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

var allSeed = flag.Uint64("quorum.all", 0, "run this seed of the model only")

// Some want some of a few locks, others take them alone, servers go away, refuse, and answer
// late, holds are lost, and callers give up: in any order. After each thing the lab looks
// that nobody waits while it holds one, and that one that has failed holds nothing. When the
// faults are over, everybody comes to an end.
func TestModel_All_NeverWaitsWhileItHolds(t *testing.T) {
	t.Parallel()
	counts := make(map[string]int)
	if *allSeed != 0 {
		allModel(t, *allSeed, counts)
		return
	}
	for range 1200 {
		allModel(t, rand.Uint64(), counts)
	}
	t.Logf("%v", counts)
	for _, what := range []string{"has all", "held", "away", "for good", "late", "stopped", "closed"} {
		if counts[what] == 0 {
			t.Errorf("never: %s", what)
		}
	}
}

func allModel(t *testing.T, seed uint64, counts map[string]int) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("again: go test ./engine/internal/quorum -quorum.all %d", seed)
		}
	}()
	random := rand.New(rand.NewPCG(seed, seed))
	one := func(in int) bool { return random.IntN(in) == 0 }
	l := newAllLab(t, "p q r s u v")
	l.pick = random.IntN
	l.draw = func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }
	l.holds = func() int { return random.IntN(4) }
	begin := func() {
		var wants string
		for _, i := range random.Perm(len(l.names))[:1+random.IntN(4)] {
			wants += " " + l.names[i]
		}
		k := l.taker(fmt.Sprint("k", len(l.all)), wants, one(4))
		k.lost = random.IntN(16) / 13
		k.does(k.Begin)
	}
	some := func() *fakeLock { return l.locks[l.names[random.IntN(len(l.names))]] }
	causes := []error{errStopped, lockerr.ErrWaited, lockerr.ErrClosed, lockerr.ErrAbandoned}
	for range 20 + random.IntN(200) {
		if len(l.all) < 6 && one(4) {
			begin()
		}
		switch x := some(); {
		case one(10) && x.owner == nil:
			x.owner = "somebody"
		case one(10) && x.owner == "somebody":
			l.release(x)
		case one(30):
			x.away = true
		case one(10) && x.away:
			l.back(x.name)
		case one(150):
			x.bad = errBad
		case one(40):
			x.late = 1
		case one(20) && len(l.all) > 0:
			k := l.all[random.IntN(len(l.all))]
			k.cancel(lockerr.Cancel{Cause: causes[random.IntN(len(causes))], TimedOut: one(2)})
		default:
			l.next()
		}
		l.check()
	}
	for _, x := range l.locks { // all is well again
		x.bad, x.late = nil, 0
		if x.away {
			l.back(x.name)
		}
		if x.owner == "somebody" {
			l.release(x)
		}
	}
	l.run()
	for _, k := range l.all {
		if k.ended != 1 {
			t.Fatalf("%s does not end: %+v, %v", k, k.Stage, k.story)
		}
		for i := range k.wants {
			if k.held[i] {
				t.Fatalf("%s keeps %s: %v", k, k.wants[i].name, k.story)
			}
		}
		switch why := k.err; {
		case k.has:
			counts["has all"]++
		case errors.Is(why, errBad):
			counts["for good"]++
		case errors.Is(why, lockerr.ErrClosed):
			counts["closed"]++
		case errors.Is(why, errStopped), errors.Is(why, lockerr.ErrWaited), errors.Is(why, lockerr.ErrAbandoned):
			counts["stopped"]++
		case errors.Is(why, lockerr.ErrGrantTooLate):
			counts["late"]++
		case errors.Is(why, lockerr.ErrHeld):
			counts["held"]++
		case errors.Is(why, lockerr.ErrUnavailable):
			counts["away"]++
		default:
			t.Fatalf("%s: %v", k, why)
		}
		if k.Once && k.refusals > 0 {
			t.Fatalf("%s is a TryLock, and went on: %v", k, k.story)
		}
	}
}
