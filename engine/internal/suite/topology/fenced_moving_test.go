package topology

import (
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// While a slot is migrated, a lock may be at one node and the counter of its tokens at the other.
// What is held is renewed, re-entered and released. Who asks waits, and gets the next token then.
func TestFencingTokensOutliveTheMigrationOfTheirSlot(t *testing.T) {
	t.Parallel()
	counter := func(key string) bool { return strings.HasPrefix(key, script.TokenPrefix) }
	for _, x := range []struct {
		name  string
		first func(key string) bool // these keys are moved first
	}{
		{"the lock goes first", func(key string) bool { return !counter(key) }},
		{"the counter goes first", counter},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			testkit.Steady(t, func(t testing.TB) {
				cluster := redistest.StartCluster(t, false)
				at := testkit.Clustered(cluster)
				lease := testkit.LeaseOf(3 * time.Second)
				a, b := at.Open(t, lease), at.Open(t, lease)
				testkit.MustUnlock(t, testkit.MustLock(t, a.FencedMutex("free{x}")))
				h := testkit.MustLock(t, a.FencedMutex("x"))
				slot, from, to := leaving(t, cluster, "x")
				if n := cluster.MoveSome(slot, from, to, x.first); n == 0 {
					t.Fatal("all keys have gone")
				}

				again := testkit.MustReenter(t, a.FencedMutex("x"), h)
				waits := []*engine.Future[*engine.Hold]{
					b.FencedMutex("x").LockAsync(t.Context()), b.FencedMutex("free{x}").LockAsync(t.Context()),
				}
				stayApart(t)
				if h.Err() != nil || again.Err() != nil || again.Token() != h.Token() {
					t.Errorf("the hold: %v; its re-entry: %v, token %d and not %d", h.Err(), again.Err(), again.Token(), h.Token())
				}
				testkit.MustUnlock(t, again)
				released := cputime.Now()
				testkit.MustUnlock(t, h)
				if d := released.Elapsed(); d > 2*time.Second {
					t.Errorf("released after %v", d)
				}
				wantPending(t, "one who waits for the lock", waits[0])
				wantPending(t, "one who asks for a free lock", waits[1])
				cluster.EndMove(slot, from, to)
				for _, f := range waits {
					next, err := f.Await(testkit.Ctx(t))
					if err != nil {
						t.Fatal(err)
					}
					if next.Token() != h.Token()+1 {
						t.Errorf("%s: token %d after %d", next.Name(), next.Token(), h.Token())
					}
					testkit.MustUnlock(t, next)
				}
			})
		})
	}
}
