package faults

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
)

// loggedOut is a fake node that answers the State of ask with NOAUTH when the gate opens, upon
// which the engine leaves all connections, and waits for what is out on them.
func loggedOut(t *testing.T) (n *fakenode.Node, e *engine.Engine, ask func(), gate *fakenode.Gate) {
	t.Helper()
	n, gate = fakenode.New(t), fakenode.NewGate()
	n.On(testkit.Calls(script.Acquire), fakenode.Int(script.Granted))
	n.OnNext(1, testkit.Calls(script.State), fakenode.Hold(gate, fakenode.Error(fakenode.NoAuth)))
	e = testkit.Open(t, "redis://"+n.Addr()+"?command_conns=1&close_timeout=500ms", func(c *engine.Config) { c.CommandTimeout = 500 * time.Millisecond })
	ctx := testkit.Within(t, 2*time.Second)
	return n, e, func() {
		go func() { _, _ = e.Mutex("y").State(ctx) }()
		n.WaitFor(1, testkit.Calls(script.State))
	}, gate
}

// What is out when another command's refusal costs the connection, and is not answered, may have
// been executed: it is not refused itself.
func TestRefusalOfOneCommandIsNotTheOutcomeOfOthers(t *testing.T) {
	t.Parallel()
	t.Run("release", func(t *testing.T) {
		t.Parallel()
		n, e, ask, gate := loggedOut(t)
		n.On(testkit.Calls(script.Release), fakenode.Int(script.NotThere))
		n.OnNext(1, testkit.Calls(script.Release), fakenode.Drop()) // executed, the answer is lost
		h := testkit.MustLock(t, e.Mutex("x"))
		ask()
		f := h.UnlockAsync()
		n.WaitFor(1, testkit.Calls(script.Release))
		gate.Open()
		if _, err := f.Await(testkit.Ctx(t)); err != nil {
			t.Errorf("Unlock: %v", err)
		}
	})
	t.Run("force", func(t *testing.T) {
		t.Parallel()
		n, e, ask, gate := loggedOut(t)
		n.On(testkit.Calls(script.Force), fakenode.Int(1))
		n.OnNext(1, testkit.Calls(script.Force), fakenode.Drop())
		ask()
		done := make(chan error, 1)
		go func() {
			_, err := e.Mutex("x").ForceUnlock(testkit.Within(t, 2*time.Second))
			done <- err
		}()
		n.WaitFor(1, testkit.Calls(script.Force))
		gate.Open()
		if err := <-done; !errors.Is(err, engine.ErrOutcomeUnknown) {
			t.Errorf("ForceUnlock: %v", err)
		}
		if got := len(n.Commands(testkit.Calls(script.Force))); got != 1 {
			t.Errorf("sent %d times", got)
		}
	})
	t.Run("acquire", func(t *testing.T) {
		t.Parallel()
		n, e, ask, gate := loggedOut(t)
		n.OnNext(1, testkit.Calls(script.Acquire), fakenode.Drop()) // granted, the answer is lost
		n.On(testkit.Calls(script.Release), fakenode.Int(script.Done))
		ask()
		f := e.Mutex("x").TryLockAsync(testkit.Ctx(t))
		n.WaitFor(1, testkit.Calls(script.Acquire))
		gate.Open()
		if _, err := f.Await(testkit.Ctx(t)); !errors.Is(err, engine.ErrNotAcquired) {
			t.Errorf("TryLock: %v", err)
		}
		n.WaitFor(1, testkit.Calls(script.Release))
		if e.Stats().InDoubt != 1 {
			t.Error("the owner is not burned")
		}
	})
}

// The bytes of an acquire arrive after an outage that was longer than anybody reckoned
// with: its owner is still released.
func TestInDoubtOwnerIsRememberedThroughALongOutage(t *testing.T) {
	t.Parallel()
	s, p, e := testkit.Behind(t, testkit.LeaseOf(500*time.Millisecond))
	burnt := ""
	cut := p.CutBeforeRequest(noting(&burnt, testkit.AcquireOf("x")))
	f := e.Mutex("x").TryLockAsync(testkit.Ctx(t))
	cut.Wait(1)
	p.Down()
	if _, err := f.Await(testkit.Ctx(t)); err == nil {
		t.Fatal("acquired")
	}
	wantInDoubt(t, e, 1)
	down := clock.System().Now()
	testkit.Eventually(t, "two leases and more have passed, and all timers", func() bool { return clock.System().Now().Sub(down) > 5*time.Second })
	p.Up()
	testkit.Eventually(t, "the lane is up", func() bool { return testkit.Client(e).Up(resp.RoleLane, 0) })
	if got := s.Do("EVALSHA", script.Acquire.SHA, "1", "x", "60000", burnt); got != int64(script.Granted) {
		t.Fatalf("the stale acquire: %v", got)
	}
	testkit.Eventually(t, "the phantom is released", func() bool { return s.Do("EXISTS", "x") == int64(0) })
}

func TestExtendThatIsRefusedForNowIsRepeatedSeldom(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		e := testkit.Open(t, s.URL(), func(c *engine.Config) { c.CommandTimeout = time.Second })
		h := testkit.MustLock(t, e.Mutex("x"), engine.Lease(30*time.Second))
		s.Do("CONFIG", "RESETSTAT")
		s.Do("CONFIG", "SET", "min-replicas-to-write", "1")
		if err := h.Extend(testkit.Ctx(t), time.Minute); !errors.Is(err, engine.ErrUnavailable) {
			t.Error(err)
		}
		if n := s.CommandStats()["evalsha"]; n > 50 {
			t.Errorf("%d times within a second", n)
		}
		s.Do("CONFIG", "SET", "min-replicas-to-write", "0")
		testkit.MustUnlock(t, h)
	})
}

// The answer to a leave was lost, and its copy finds nothing: then the outer hold is
// gone, too, for a leave removes nothing.
func TestLeaveThatFindsNothingEndsTheOuterHold(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	n.On(testkit.Calls(script.Acquire), fakenode.Int(script.Granted))
	n.On(testkit.Calls(script.Reenter), fakenode.Int(script.Granted))
	n.On(testkit.Calls(script.Leave), fakenode.Int(script.NotThere))
	n.OnNext(1, testkit.Calls(script.Leave), fakenode.Close())
	n.On(testkit.Calls(script.Release), fakenode.Int(script.NotThere))
	e := testkit.Open(t, "redis://"+n.Addr()+"?command_conns=1&close_timeout=500ms")
	outer := testkit.MustLock(t, e.Mutex("x"), engine.Lease(time.Hour))
	inner, err := e.Mutex("x").Lock(outer.Context(testkit.Ctx(t)))
	if err != nil {
		t.Fatal(err)
	}
	if err := inner.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
		t.Errorf("Unlock of the inner one: %v", err)
	}
	<-outer.Done()
	if err := outer.Err(); !errors.Is(err, engine.ErrLost) {
		t.Errorf("the outer one: %v", err)
	}
}

// A release that ASK sends nowhere ends with its lease, like any other.
func TestReleaseThatCannotReachTheOtherNodeEndsWithItsLease(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		n := fakenode.New(t)
		host, port, _ := net.SplitHostPort(n.Addr())
		n.On(fakenode.Is("CLUSTER", "SLOTS"), fakenode.Raw(fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)))
		n.On(testkit.Calls(script.Acquire), fakenode.Int(script.Granted))
		n.On(testkit.Calls(script.Release), fakenode.Error("ASK 5 127.0.0.1:1"))
		e := testkit.Open(t, "redis+cluster://"+n.Addr()+"?sharded_pubsub=off&close_timeout=500ms")
		h := testkit.MustLock(t, e.Mutex("x"), engine.Lease(600*time.Millisecond))
		if err := h.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrOutcomeUnknown) || !errors.Is(err, engine.ErrUnavailable) {
			t.Errorf("%v", err)
		}
	})
}

// The former primary follows one that does not let it in, and refuses everything with
// MASTERDOWN: that is what a replica says.
func TestFormerPrimaryThatIsDownIsLeft(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t, 1)
	e := testkit.Replicated(r).Open(t)
	testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x")))
	a, b := r.Servers()[0], r.Servers()[1]
	r.AwaitInStep()
	a.Do("CONFIG", "SET", "replica-serve-stale-data", "no")
	b.Do("REPLICAOF", "NO", "ONE")
	a.Do("REPLICAOF", "127.0.0.1", "1")
	testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x")))
}
