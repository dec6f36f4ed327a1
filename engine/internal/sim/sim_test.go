package sim

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// gnet's worker pool starts these two when it is imported; they never end.
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"),
	)
}

var (
	seed  = flag.Uint64("sim.seed", 0, "run this seed only, and print its story")
	lasts = flag.Duration("sim.time", 2*time.Second, "how long to draw new seeds")
)

// Fresh seeds, for as long as -sim.time says.
func TestNoSeedBreaksAPromise(t *testing.T) {
	if *seed != 0 {
		r := Run(*seed, true)
		t.Log("\n" + r.Story)
		if r.Failure != nil {
			t.Fatal(r.Failure)
		}
		return
	}
	var events, handed, deadlocks, suspected uint64
	n := 0
	start := time.Now()
	for ; time.Since(start) < *lasts; n++ {
		seed := rand.Uint64()
		r := Run(seed, false)
		events += r.Events
		handed += r.HandedOver
		deadlocks += r.Deadlocks
		suspected += r.Suspected
		if r.Failure != nil {
			t.Fatalf("%v\nits story: go test ./engine/internal/sim -sim.seed %d -v", r.Failure, seed)
		}
	}
	t.Logf("%d seeds, %d events, %.0f a second, %d locks handed over, %d deadlocks found, %d possible ones", n, events, float64(events)/time.Since(start).Seconds(), handed, deadlocks, suspected)
	if n > 50 && handed == 0 {
		t.Error("no lock was handed over")
	}
}

// A seed is a reproduction: it tells the same story each time.
func TestASeedTellsTheSameStory(t *testing.T) {
	t.Parallel()
	seeds := 6
	if testkit.Race {
		seeds = 2
	}
	for range seeds {
		seed := rand.Uint64()
		a, b := Run(seed, false), Run(seed, true)
		if a.Print != b.Print || a.Events != b.Events {
			t.Fatalf("seed %d: %d events, then %d; the stories differ", seed, a.Events, b.Events)
		}
	}
}
