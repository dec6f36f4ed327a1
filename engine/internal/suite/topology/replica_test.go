package topology

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// T28: a replica may be behind, or have other values. What asks for a state asks the primary, in every
// deployment.
func TestNoReplicaIsAskedForAState(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (at *testkit.Site, replicas []*redistest.Server, inStep func()){
		"replicas": func(t *testing.T) (*testkit.Site, []*redistest.Server, func()) {
			r := redistest.StartReplicated(t, 2)
			return testkit.Replicated(r), r.Servers()[1:], r.AwaitInStep
		},
		"sentinel": func(t *testing.T) (*testkit.Site, []*redistest.Server, func()) {
			r := redistest.StartSentinel(t)
			return testkit.Replicated(r), r.Servers()[1:], r.AwaitInStep
		},
		"cluster": func(t *testing.T) (*testkit.Site, []*redistest.Server, func()) {
			c := redistest.StartCluster(t, true)
			var replicas []*redistest.Server
			for _, primary := range c.Primaries() {
				replicas = append(replicas, c.ReplicaOf(primary))
			}
			return testkit.Clustered(c), replicas, c.AwaitInStep
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, replicas, inStep := start(t)
			e := at.Open(t, testkit.LeaseOf(time.Hour)) // a renewal would be one more script
			locks := []engine.Mutex{e.Mutex("m"), e.FairMutex("f"), e.FencedMutex("t"), e.RWMutex("r").Reader(), e.RWMutex("w").Writer()}
			for _, m := range locks {
				testkit.MustLock(t, m)
			}
			sem, latch, permits := e.Semaphore("s"), e.Latch("l"), e.PermitSemaphore("p")
			_, err1 := sem.TrySetPermits(testkit.Ctx(t), 3)
			_, err2 := latch.TrySetCount(testkit.Ctx(t), 3)
			if err := errors.Join(err1, err2, permits.SetPermits(testkit.Ctx(t), 3)); err != nil {
				t.Fatal(err)
			}
			if _, err := permits.Acquire(testkit.Ctx(t), 1); err != nil {
				t.Fatal(err)
			}
			inStep()
			for _, r := range replicas { // they forget everything
				r.Do("CONFIG", "SET", "replica-read-only", "no")
				if v := r.Do("FLUSHALL"); v != "OK" {
					t.Fatal(v)
				}
			}
			asked, answered := scriptsOf(replicas), scriptsOf(at.Servers())
			for _, m := range locks {
				if st, err := m.State(testkit.Ctx(t)); err != nil || !st.Mine {
					t.Errorf("%s: %+v, %v", m.Name(), st, err)
				}
			}
			for what, ask := range map[string]struct {
				of   func(context.Context) (int, error)
				want int
			}{
				"permits of a semaphore":     {sem.Available, 3},
				"a latch":                    {latch.Count, 3},
				"permits that are to be had": {permits.Available, 2},
				"permits that are held":      {permits.Acquired, 1},
				"all permits":                {permits.Capacity, 3},
			} {
				if n, err := ask.of(testkit.Ctx(t)); n != ask.want || err != nil {
					t.Errorf("%s: %d, %v; want %d", what, n, err, ask.want)
				}
			}
			if n := scriptsOf(replicas) - asked; n != 0 {
				t.Errorf("replicas were sent %d scripts", n)
			}
			if n := scriptsOf(at.Servers()) - answered; n != 10 {
				t.Errorf("primaries were sent %d scripts, want one for each question", n)
			}
		})
	}
}

// scriptsOf counts those that the servers were sent.
func scriptsOf(servers []*redistest.Server) (sum int64) {
	for _, s := range servers {
		n := s.CommandStats()
		sum += n["evalsha"] + n["eval"]
	}
	return sum
}
