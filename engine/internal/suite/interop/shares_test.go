package interop

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// Two engines of one goroutine each and four threads of Java take one Mutex without a pause between their turns.
// Each side has a quarter of the turns: neither the queue of the engines nor Redisson's waiters, of which each
// message wakes one, keep the other side out.
func TestMutex_TwoEnginesAndFourThreadsOfJava_ShareTheTurns(t *testing.T) {
	const threads = 4
	s := newStage(t, ground{name: "standalone", sites: 1}, calm)
	engines := []*engine.Engine{s.engines[0], s.engine(t, s.sites[0])}
	length := pick(3*time.Second, 10*time.Second)
	asked := s.jvm.ask("main", "turns", "plain", s.clients[0]+"/turns", threads, length.Milliseconds())
	testkit.Eventually(t, "Java has begun", func() bool { return s.sites[0].do(t, "turns", "EXISTS", "turns") == int64(1) })
	var mine atomic.Int64
	var over atomic.Bool // Java has stopped: what comes after that is no share
	var all sync.WaitGroup
	for _, e := range engines {
		all.Go(func() {
			for m := e.Mutex("turns"); !over.Load(); {
				h, err := m.Lock(testkit.Within(t, patience))
				if err != nil {
					t.Error(err)
					return
				}
				if err := h.Unlock(testkit.Within(t, patience)); err != nil {
					t.Error(err)
					return
				}
				if !over.Load() {
					mine.Add(1)
				}
			}
		})
	}
	answered := asked.want(t)
	over.Store(true)
	all.Wait()
	theirs, err := strconv.ParseInt(answered, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	of := mine.Load() + theirs
	t.Logf("%d turns of Go and %d of Java in %v: %.0f %% are Java's", of-theirs, theirs, length, 100*float64(theirs)/float64(of))
	if share := float64(theirs) / float64(of); share < 0.25 || share > 0.75 {
		t.Errorf("Java has had %d of %d turns", theirs, of)
	}
	s.clean(t)
}
