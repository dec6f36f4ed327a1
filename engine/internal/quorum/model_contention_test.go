package quorum

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// group is contenders of processes of their own, far from their servers.
type group struct {
	*world
	trip time.Duration // there and back, in the mean
}

// newGroup has others keep the lock at some servers for ever, and others hang.
func newGroup(t testing.TB, seed uint64, servers, contenders int, trip time.Duration, kept, hung []int) group {
	w := group{world: &world{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 0)), now: clock.Instant(time.Hour), lease: 30 * time.Second}, trip: trip}
	w.quiet, w.short = true, true
	for i := range servers {
		s := &server{world: w.world, id: i, far: trip / 3} // each way is up to twice as long
		if slices.Contains(kept, i) {
			s.owner, s.expires = new(grant), w.now.Add(time.Hour)
		}
		if slices.Contains(hung, i) {
			s.hangs = w.now.Add(time.Hour)
		}
		w.servers = append(w.servers, s)
	}
	for i := range contenders {
		c := &client{world: w.world, id: i, process: i, waits: true}
		w.clients = append(w.clients, c)
		c.later()
	}
	return w
}

// free returns for how many round trips the lock is free between two owners, each time.
func (w group) free(d time.Duration) (trips []float64) {
	w.t.Helper()
	var released clock.Instant
	held := false
	w.run(d, func() bool {
		was := held
		held = slices.ContainsFunc(w.clients, func(c *client) bool { return c.m != nil && c.m.Stage == Holding })
		switch {
		case held && !was && released != 0:
			trips = append(trips, float64(w.now.Sub(released))/float64(w.trip))
		case was && !held:
			released = w.now
		}
		return false
	})
	if len(trips) == 0 {
		w.fail("nobody has got it within %v", d)
	}
	return trips
}

// Twelve contenders: the lock is free for a few round trips between two owners. Beside somebody who keeps a
// minority for ever, or with servers that hang, all of the others may be needed. Near servers are waited for in
// vain for many round trips, so there the mean counts in time.
func TestModel_Group_IsFreeForAFewRoundTrips(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		servers    int
		kept, hung []int
		median     float64       // round trips at most, 0.2 s each
		near       time.Duration // in the mean at most, with round trips of 1 ms
	}{
		{servers: 3, median: 4, near: 10 * time.Millisecond},
		{servers: 5, median: 4, near: 10 * time.Millisecond},
		{servers: 3, hung: []int{0}, median: 9, near: 20 * time.Millisecond},
		{servers: 5, hung: []int{0}, median: 9, near: 20 * time.Millisecond},
		{servers: 5, hung: []int{0, 1}, median: 15, near: 20 * time.Millisecond},
		{servers: 5, hung: []int{1, 3}, median: 15, near: 20 * time.Millisecond},
		{servers: 5, hung: []int{3, 4}, median: 15, near: 20 * time.Millisecond},
		{servers: 3, kept: []int{0}, median: 4, near: 60 * time.Millisecond},
		{servers: 3, kept: []int{1}, median: 8, near: 60 * time.Millisecond},
		{servers: 3, kept: []int{2}, median: 14, near: 60 * time.Millisecond},
		{servers: 5, kept: []int{0, 1}, median: 4, near: 60 * time.Millisecond},
		{servers: 5, kept: []int{0, 3}, median: 4, near: 60 * time.Millisecond},
		{servers: 5, kept: []int{3, 4}, median: 28, near: 60 * time.Millisecond},
		{servers: 5, kept: []int{4}, hung: []int{0}, median: 28, near: 60 * time.Millisecond},
	} {
		seed := *worldSeed
		if seed == 0 {
			seed = rand.Uint64()
		}
		measure := func(trip, d time.Duration) (median, mean float64) {
			trips := newGroup(t, seed, c.servers, 12, trip, c.kept, c.hung).free(d)
			slices.Sort(trips)
			for _, one := range trips {
				mean += one / float64(len(trips))
			}
			median = trips[len(trips)/2]
			t.Logf("%d servers, kept %v, hung %v, %v away: %d times free, for %.1f round trips in the median, %.1f in the mean, %.1f at most",
				c.servers, c.kept, c.hung, trip, len(trips), median, mean, trips[len(trips)-1])
			return median, mean
		}
		if median, _ := measure(200*time.Millisecond, 3*time.Minute); median > c.median {
			t.Errorf("seed %d: %d servers, kept %v, hung %v: %.1f round trips in the median", seed, c.servers, c.kept, c.hung, median)
		}
		if _, mean := measure(time.Millisecond, 8*time.Second); mean > float64(c.near/time.Millisecond) {
			t.Errorf("seed %d: %d servers, kept %v, hung %v: %.1f ms in the mean", seed, c.servers, c.kept, c.hung, mean)
		}
	}
}
