package topology

import (
	"fmt"
	"testing"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// The nodes of a cluster announce addresses that nobody here can dial: each stands
// behind a proxy. Nothing goes past AddrMap, and a network that breaks there is
// survived as anywhere.
func TestClusterBehindAddressTranslation(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, false)
	at := testkit.Clustered(cluster)
	outside := make(map[string]*faultproxy.Proxy)
	for _, s := range cluster.Nodes() {
		outside[s.Addr()] = faultproxy.New(t, "tcp", s.Addr())
	}
	first := cluster.Nodes()[0].Addr()
	at.URL = "redis+cluster://" + outside[first].Addr()
	translated := func(c *engine.Config) {
		c.AddrMap = func(addr string) string {
			p := outside[addr]
			if p == nil {
				return "127.0.0.1:1" // an address that nobody told of
			}
			return p.Addr()
		}
	}
	a, b := at.Open(t, translated), at.Open(t, translated)
	const n = 60
	var holds []*engine.Hold
	var futures []*engine.Future[*engine.Hold]
	for i := range n {
		holds = append(holds, testkit.MustLock(t, a.Mutex(fmt.Sprint("x", i))))
		futures = append(futures, b.Mutex(fmt.Sprint("x", i)).LockAsync(testkit.Ctx(t)))
	}
	testkit.Eventually(t, "all listen", func() bool { return testkit.Client(b).Stats().ChannelsConfirmed == n })
	for _, p := range outside {
		if p.Cut(faultproxy.All) < 6 {
			t.Error("a node has fewer connections than two engines make: they go past AddrMap")
		}
	}
	// Slots move to where nobody was sent before, so MOVED is translated, too.
	for i := 0; i < n; i += 10 {
		slot := cluster.Slot(fmt.Sprint("x", i))
		for _, s := range cluster.Primaries() {
			if s != cluster.AwaitOwner(slot) {
				cluster.Move(slot, s)
				break
			}
		}
	}
	for i := range n {
		testkit.MustUnlock(t, holds[i])
		h, err := futures[i].Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		testkit.MustUnlock(t, h)
	}
	at.Clean(t)
}
