package topology

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// Plain messages of a cluster go from node to node, and one may get lost there. Here somebody deletes
// the key and sends none, which is the same to those who wait. The lease is an hour.
func TestInAClusterAMissedMessageCostsAFewSeconds(t *testing.T) {
	t.Parallel()
	for kind, mutex := range map[string]func(*engine.Engine) engine.Mutex{
		"Mutex":       func(e *engine.Engine) engine.Mutex { return e.Mutex("x") },
		"FencedMutex": func(e *engine.Engine) engine.Mutex { return e.FencedMutex("x") },
		"FairMutex":   func(e *engine.Engine) engine.Mutex { return e.FairMutex("x") },
		"Reader":      func(e *engine.Engine) engine.Mutex { return e.RWMutex("x").Reader() },
		"Writer":      func(e *engine.Engine) engine.Mutex { return e.RWMutex("x").Writer() },
	} {
		for _, where := range []string{"in another process", "behind a hold of this one"} {
			t.Run(kind+"/"+where, func(t *testing.T) {
				t.Parallel()
				cluster := redistest.StartCluster(t, false)
				off := func(c *engine.Config) { c.ShardedPubSub = "off" }
				waiter := testkit.Open(t, cluster.URL(), off)
				holder := waiter
				if where == "in another process" {
					holder = testkit.Open(t, cluster.URL(), off)
				}
				held := mutex(holder)
				if kind == "Reader" {
					held = holder.RWMutex("x").Writer()
				}
				h := testkit.MustLock(t, held, engine.Lease(time.Hour))
				scripts := func() (n int64) {
					for _, s := range cluster.Nodes() {
						n += s.CommandStats()["evalsha"]
					}
					return n
				}
				before := scripts()
				waits := mutex(waiter).LockAsync(testkit.Ctx(t))
				tries := int64(2) // the second one is that of the confirmation
				if holder == waiter {
					tries = 1 // it looks at the hold when it listens
				}
				testkit.Eventually(t, "it listens, and sleeps", func() bool {
					return testkit.Client(waiter).Stats().ChannelsConfirmed == 1 && scripts() >= before+tries && waiter.Stats().InFlight == 0
				})
				cluster.Do("x", "DEL", "x")
				since := cputime.Now()
				next, err := waits.Await(testkit.Ctx(t))
				if err != nil {
					t.Fatal(err)
				}
				if d := since.Elapsed(); d > lock.LongestSleepMissed+2*time.Second {
					t.Errorf("granted after %v", d)
				}
				if err := h.Err(); holder == waiter && kind != "FairMutex" && err == nil { // whose waiters know of no hold
					t.Error("the hold of the same process is valid")
				}
				testkit.MustUnlock(t, next)
			})
		}
	}
}
