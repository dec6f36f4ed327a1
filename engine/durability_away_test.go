package engine

import (
	"errors"
	"slices"
	"testing"

	"github.com/pawl-lock/pawl/internal/redistest"
)

// refusedFor waits until "all" is refused, with that replica named as the one that is
// away.
func refusedFor(t *testing.T, e *Engine, name string, away *redistest.Server) {
	t.Helper()
	var short *AckError
	var last error
	defer func() {
		if t.Failed() {
			t.Logf("the latest answer: %v", last)
		}
	}()
	eventually(t, "it is refused, and who is away is named", func() bool {
		h, err := e.Mutex(name).Lock(ctxT(t), Acked(AllReplicas))
		if last = err; err == nil {
			mustUnlock(t, h)
		}
		return errors.As(err, &short) && short.Cause == nil && short.Acked == 1 && short.Wanted == 2 && slices.Equal(short.Away, []string{away.Addr()})
	})
	for range 20 {
		if _, err := e.Mutex(name).Lock(ctxT(t), Acked(AllReplicas)); !errors.As(err, &short) || short.Wanted != 2 || !hasText(err, "away: "+away.Addr()) {
			t.Fatalf("%v", err)
		}
	}
	if _, err := e.Mutex(name).Lock(ctxT(t), Acked(MajorityOfReplicas)); !errors.As(err, &short) {
		t.Errorf("a majority of two is both: %v", err)
	}
	mustUnlock(t, mustLock(t, e.Mutex(name), Acked(1))) // a number is for callers that must go on
}

// grantedAgain waits until "all" is granted, with so many.
func grantedAgain(t *testing.T, e *Engine, name string, acked int) {
	t.Helper()
	eventually(t, "it is granted again", func() bool {
		h, err := e.Mutex(name).Lock(ctxT(t), Acked(AllReplicas))
		if err != nil {
			return false
		}
		defer mustUnlock(t, h)
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
		e := open(t, r.URL())
		grantedAgain(t, e, "x", 2)
		gone := r.Servers()[2]
		gone.Kill()
		refusedFor(t, e, "x", gone)
		// An engine that has never seen it knows of it, too.
		refusedFor(t, open(t, r.URL()), "x", gone)
	})
	t.Run("a cluster", func(t *testing.T) {
		t.Parallel()
		c := redistest.StartClusterOf(t, 2)
		name := inFirstPart(c)
		e := open(t, c.URL())
		grantedAgain(t, e, name, 2)
		gone := c.ReplicaOf(c.Owner(c.Slot(name)))
		id := c.ID(gone)
		gone.Kill()
		refusedFor(t, e, name, gone)
		refusedFor(t, open(t, c.URL()), name, gone)
		for _, s := range c.Running() {
			s.Do("CLUSTER", "FORGET", id)
		}
		grantedAgain(t, open(t, c.URL()), name, 1)
	})
	t.Run("the configuration", func(t *testing.T) {
		t.Parallel()
		r := redistest.StartReplicated(t, 2)
		e := open(t, r.URL())
		grantedAgain(t, e, "x", 2)
		gone := r.Servers()[2]
		gone.Kill()
		refusedFor(t, e, "x", gone)
		refusedFor(t, open(t, r.URL()), "x", gone)
	})
	t.Run("the engine", func(t *testing.T) {
		t.Parallel()
		r := redistest.StartReplicated(t, 2)
		e := open(t, r.Primary().URL())
		grantedAgain(t, e, "x", 2)
		r.Servers()[2].Kill()
		eventually(t, "it is refused", func() bool {
			h, err := e.Mutex("x").Lock(ctxT(t), Acked(AllReplicas))
			if err == nil {
				mustUnlock(t, h)
				return false
			}
			notAcked(t, err, 1, 2)
			return true
		})
		grantedAgain(t, open(t, r.Primary().URL()), "x", 1) // nobody has told this one
	})
}

// A replica that comes back counts again by being there.
func TestReplicaThatComesBackAcknowledgesAgain(t *testing.T) {
	t.Parallel()
	r := redistest.StartSentinel(t)
	e := open(t, r.URL())
	grantedAgain(t, e, "x", 2)
	r.Servers()[2].Stop()
	r.Servers()[0].Do("CLIENT", "KILL", "TYPE", "replica") // or it would be there, and silent
	refusedFor(t, e, "x", r.Servers()[2])
	r.Servers()[2].Cont()
	grantedAgain(t, e, "x", 2)
}
