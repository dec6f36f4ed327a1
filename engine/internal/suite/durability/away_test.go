package durability

import (
	"errors"
	"slices"
	"testing"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// refusedFor waits until "all" is refused, with that replica named as the one that is
// away.
func refusedFor(t *testing.T, e *engine.Engine, name string, away *redistest.Server) {
	t.Helper()
	var short *engine.AckError
	var last error
	defer func() {
		if t.Failed() {
			t.Logf("the latest answer: %v", last)
		}
	}()
	testkit.Eventually(t, "it is refused, and who is away is named", func() bool {
		h, err := e.Mutex(name).Lock(testkit.Ctx(t), engine.Acked(engine.AllReplicas))
		if last = err; err == nil {
			testkit.MustUnlock(t, h)
		}
		return errors.As(err, &short) && short.Cause == nil && short.Acked == 1 && short.Wanted == 2 && slices.Equal(short.Away, []string{away.Addr()})
	})
	for range 20 {
		if _, err := e.Mutex(name).Lock(testkit.Ctx(t), engine.Acked(engine.AllReplicas)); !errors.As(err, &short) || short.Wanted != 2 || !testkit.HasText(err, "away: "+away.Addr()) {
			t.Fatalf("%v", err)
		}
	}
	if _, err := e.Mutex(name).Lock(testkit.Ctx(t), engine.Acked(engine.MajorityOfReplicas)); !errors.As(err, &short) {
		t.Errorf("a majority of two is both: %v", err)
	}
	testkit.MustUnlock(t, mustLockAcked(t, e.Mutex(name), engine.Acked(1))) // a number is for callers that must go on
}

// grantedAgain waits until "all" is granted, with so many.
func grantedAgain(t *testing.T, e *engine.Engine, name string, acked int) {
	t.Helper()
	testkit.Eventually(t, "it is granted again", func() bool {
		h, err := e.Mutex(name).Lock(testkit.Ctx(t), engine.Acked(engine.AllReplicas))
		if err != nil {
			return false
		}
		defer testkit.MustUnlock(t, h)
		return h.Acked() == acked
	})
}

// Whatever keeps the list of replicas, one that is away counts until it is taken from the
// list: it may come back, and be promoted.
func TestReplicaThatIsAwayCountsUntilTheDeploymentForgetsIt(t *testing.T) {
	t.Parallel()
	t.Run("sentinels", func(t *testing.T) {
		t.Parallel()
		r := redistest.StartSentinel(t)
		e := testkit.Open(t, r.URL())
		grantedAgain(t, e, "x", 2)
		gone := r.Servers()[2]
		gone.Kill()
		refusedFor(t, e, "x", gone)
		// An engine that has never seen it knows of it, too.
		refusedFor(t, testkit.Open(t, r.URL()), "x", gone)
	})
	t.Run("a cluster", func(t *testing.T) {
		t.Parallel()
		c := redistest.StartClusterOf(t, 2)
		name := inFirstPart(c)
		e := testkit.Open(t, c.URL())
		grantedAgain(t, e, name, 2)
		gone := c.ReplicaOf(c.Owner(c.Slot(name)))
		id := c.ID(gone)
		gone.Kill()
		refusedFor(t, e, name, gone)
		refusedFor(t, testkit.Open(t, c.URL()), name, gone)
		for _, s := range c.Running() {
			s.Do("CLUSTER", "FORGET", id)
		}
		grantedAgain(t, testkit.Open(t, c.URL()), name, 1)
	})
	t.Run("the configuration", func(t *testing.T) {
		t.Parallel()
		r := redistest.StartReplicated(t, 2)
		e := testkit.Open(t, r.URL())
		grantedAgain(t, e, "x", 2)
		gone := r.Servers()[2]
		gone.Kill()
		refusedFor(t, e, "x", gone)
		refusedFor(t, testkit.Open(t, r.URL()), "x", gone)
	})
	t.Run("the engine", func(t *testing.T) {
		t.Parallel()
		r := redistest.StartReplicated(t, 2)
		e := testkit.Open(t, r.Primary().URL())
		grantedAgain(t, e, "x", 2)
		r.Servers()[2].Kill()
		testkit.Eventually(t, "it is refused", func() bool {
			h, err := e.Mutex("x").Lock(testkit.Ctx(t), engine.Acked(engine.AllReplicas))
			if err == nil {
				testkit.MustUnlock(t, h)
				return false
			}
			var short *engine.AckError
			return errors.As(err, &short) && short.Acked == 1 && short.Wanted == 2
		})
		grantedAgain(t, testkit.Open(t, r.Primary().URL()), "x", 1) // nobody has told this one
	})
}

// A replica that comes back counts again by being there.
func TestReplicaThatComesBackAcknowledgesAgain(t *testing.T) {
	t.Parallel()
	r := redistest.StartSentinel(t)
	e := testkit.Open(t, r.URL())
	grantedAgain(t, e, "x", 2)
	r.Servers()[2].Stop()
	r.Servers()[0].Do("CLIENT", "KILL", "TYPE", "replica") // or it would be there, and silent
	refusedFor(t, e, "x", r.Servers()[2])
	r.Servers()[2].Cont()
	grantedAgain(t, e, "x", 2)
}
