package topology

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// A plain URL may lead to a node of a cluster, or to a proxy in front of shards. Such a
// server refuses renewals of several slots in one script, and that costs no hold.
func TestHoldsOfManySlotsBehindOneAddressAreRenewed(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		c := redistest.StartCluster(t, false)
		node := c.Nodes()[0]
		e := testkit.Open(t, "redis://"+node.Addr(), func(c *engine.Config) { c.Lease = 2 * time.Second })
		var holds []*engine.Hold
		for i := 0; len(holds) < 20; i++ {
			if name := fmt.Sprint("x", i); c.Owner(c.Slot(name)) == node {
				holds = append(holds, testkit.MustLock(t, e.Mutex(name)))
			}
		}
		testkit.Eventually(t, "every hold has been renewed four times, or one is lost", func() bool {
			s := e.Stats()
			return s.Renewed >= uint64(4*len(holds)) || s.Held < len(holds)
		})
		for _, h := range holds {
			if err := h.Err(); err != nil {
				t.Errorf("%s: %v", h.Name(), err)
			}
		}
	})
}
