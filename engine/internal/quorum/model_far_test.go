package quorum

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// Somebody keeps a minority of the servers. The others are free, and far away, some farther than
// others: all are asked at once, and a majority grants it within a round trip of the slowest that is needed.
func TestModel_FarMajority_GrantsItWithinARoundTrip(t *testing.T) {
	t.Parallel()
	if *worldSeed != 0 {
		newFarWorld(t, *worldSeed).isGranted()
		return
	}
	var took []float64
	for range 20 * *worlds {
		took = append(took, newFarWorld(t, rand.Uint64()).isGranted())
	}
	slices.Sort(took)
	if most := took[len(took)-1]; most > 1 {
		t.Errorf("%.1f round trips in one of %d worlds", most, len(took))
	}
	t.Logf("round trips in %d worlds: median %.1f, most %.1f", len(took), took[len(took)/2], took[len(took)-1])
}

type farWorld struct {
	*world
	slowest time.Duration // there and back, of the servers that are free
}

func newFarWorld(t testing.TB, seed uint64) farWorld {
	w := farWorld{world: &world{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 0)), now: clock.Instant(time.Hour), lease: 30 * time.Second}}
	w.quiet = true
	servers := []int{3, 5, 7}[w.r.IntN(3)]
	most := w.between(20*time.Millisecond, 120*time.Millisecond)
	free := w.r.Perm(servers)[:servers/2+1]
	for i := range servers {
		s := &server{world: w.world, id: i, far: w.between(0, most)}
		w.servers = append(w.servers, s)
		if slices.Contains(free, i) {
			w.slowest = max(w.slowest, 4*s.far) // each way is up to twice as long
		} else {
			s.owner, s.expires = new(grant), w.now.Add(time.Hour)
		}
	}
	w.clients = []*client{{world: w.world, waits: true}}
	return w
}

// isGranted returns after how many round trips.
func (w farWorld) isGranted() float64 {
	w.t.Helper()
	c, began := w.clients[0], w.now
	c.want()
	w.run(time.Minute, func() bool { return c.m.Stage == Holding })
	trips := float64(w.now.Sub(began)) / float64(w.slowest)
	if c.m.Stage != Holding || trips > 20 {
		w.fail("granted after %v, %.1f round trips", w.now.Sub(began), trips)
	}
	return trips
}
