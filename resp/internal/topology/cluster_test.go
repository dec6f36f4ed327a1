package topology

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// All nodes have got other addresses at once, as pods do, and the old ones lead nowhere. The
// configured one leads to the cluster.
func TestClusterFinder_AllLearntAddressesAreDead_CostsAHedgeDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer w.close()
		slots := func(network int) func([]string) string {
			text := fmt.Sprintf("*%d\r\n", maxKnown)
			for i := range maxKnown {
				text += fmt.Sprintf("*3\r\n:%d\r\n:%d\r\n*3\r\n%s:1\r\n%s", 100*i, 100*i+99, bulk(fmt.Sprintf("10.0.%d.%d", network, i)), bulk(fmt.Sprint("id", i)))
			}
			return func([]string) string { return text }
		}
		w.set("seed:1", pipeServer{answer: slots(1)})
		cfg := w.config(Cluster, "seed:1")
		s := newProbes(t.Context(), cfg, SearchTimeout)
		defer s.close()
		f := newFinder(cfg, s)
		find := func() (string, time.Duration) {
			began := time.Now()
			l, err := f.find(t.Context(), "", false)
			if err != nil {
				t.Fatal(err)
			}
			s.tidy(false)
			return l.Shards[0].Primary, time.Since(began)
		}
		find()
		for i := range maxKnown {
			w.set(fmt.Sprintf("10.0.1.%d:1", i), pipeServer{slow: time.Hour})
			w.set(fmt.Sprintf("10.0.2.%d:1", i), pipeServer{answer: slots(2)})
		}
		w.set("seed:1", pipeServer{answer: slots(2)})
		if primary, took := find(); primary != "10.0.2.0:1" || took > HedgeDelay {
			t.Errorf("%s serves, after %v", primary, took)
		}
	})
}
