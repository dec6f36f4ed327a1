package quorum

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// Somebody keeps a minority of the servers, perhaps the first. Several want the lock of the others,
// which are far away: they take turns, and do not take the votes from each other.
func TestContendersBesideAnOwnerOfAMinorityTakeTurns(t *testing.T) {
	t.Parallel()
	if *worldSeed != 0 {
		newCrowd(t, *worldSeed).takesTurns()
		return
	}
	var trips []float64
	sum := 0.0
	for range 4 * *worlds {
		got := newCrowd(t, rand.Uint64()).takesTurns()
		trips = append(trips, got)
		sum += got
	}
	slices.Sort(trips)
	mean := sum / float64(len(trips))
	t.Logf("round trips between two owners in %d worlds: mean %.1f, median %.1f, most %.1f", len(trips), mean, trips[len(trips)/2], trips[len(trips)-1])
	if mean > 4.9 {
		t.Errorf("a mean of %.1f round trips between two owners", mean)
	}
}

type crowd struct {
	*world
	trip time.Duration // there and back, in the mean
}

func newCrowd(t testing.TB, seed uint64) crowd {
	w := crowd{world: &world{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 0)), now: clock.Instant(time.Hour), lease: 30 * time.Second}}
	w.quiet = true
	far := w.between(50*time.Millisecond, 130*time.Millisecond)
	w.trip = 3 * far // each way is up to twice as long
	held := w.r.IntN(3)
	for i := range 3 {
		s := &server{world: w.world, id: i, far: far}
		w.servers = append(w.servers, s)
		if i == held {
			s.owner, s.expires = new(grant), w.now.Add(time.Hour)
		}
	}
	for i := range 2 + w.r.IntN(5) {
		c := &client{world: w.world, id: i, process: i, waits: true}
		w.clients = append(w.clients, c)
		c.want()
	}
	return w
}

// takesTurns returns how many round trips it takes in the mean until one is followed by the next.
func (w crowd) takesTurns() float64 {
	w.t.Helper()
	var free time.Duration
	began, since, owners := w.now, w.now, 0
	w.run(2*time.Minute, func() bool {
		holds := slices.ContainsFunc(w.clients, func(c *client) bool { return c.m != nil && c.m.Stage == Holding })
		if !holds {
			free += w.now.Sub(since)
		}
		since = w.now
		return false
	})
	for _, c := range w.clients {
		owners += c.sections
	}
	if owners == 0 {
		w.fail("nobody has got it within %v", w.now.Sub(began))
	}
	return float64(free) / float64(owners) / float64(w.trip)
}
