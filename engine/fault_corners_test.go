package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
)

func calls(s *script.Script) fakenode.Match { return fakenode.Is("EVALSHA", s.SHA) }

// demoted is a fake node that answers the State of ask with READONLY when the gate opens,
// upon which the engine makes all connections anew, whatever is out on them.
func demoted(t *testing.T) (n *fakenode.Node, e *Engine, ask func(), gate *fakenode.Gate) {
	t.Helper()
	n, gate = fakenode.New(t), fakenode.NewGate()
	n.On(calls(script.Acquire), fakenode.Int(script.Granted))
	n.OnNext(1, calls(script.State), fakenode.Hold(gate, fakenode.Error(fakenode.ReadOnly)))
	e = open(t, "redis://"+n.Addr()+"?lanes=1&close_timeout=500ms")
	ctx := within(t, 2*time.Second)
	return n, e, func() {
		go func() { _, _ = e.Mutex("y").State(ctx) }()
		n.WaitFor(1, calls(script.State))
	}, gate
}

// What was out when another command's refusal cost the connection may have been
// executed: it is not refused itself.
func TestRefusalOfOneCommandIsNotTheOutcomeOfOthers(t *testing.T) {
	t.Parallel()
	t.Run("release", func(t *testing.T) {
		t.Parallel()
		n, e, ask, gate := demoted(t)
		n.On(calls(script.Release), fakenode.Int(script.NotThere))
		n.OnNext(1, calls(script.Release), fakenode.Drop()) // executed, the answer is lost
		h := mustLock(t, e.Mutex("x"))
		ask()
		f := h.UnlockAsync()
		n.WaitFor(1, calls(script.Release))
		gate.Open()
		if _, err := f.Await(ctxT(t)); err != nil {
			t.Errorf("Unlock: %v", err)
		}
	})
	t.Run("force", func(t *testing.T) {
		t.Parallel()
		n, e, ask, gate := demoted(t)
		n.On(calls(script.Force), fakenode.Int(1))
		n.OnNext(1, calls(script.Force), fakenode.Drop())
		ask()
		done := make(chan error, 1)
		go func() {
			_, err := e.Mutex("x").ForceUnlock(within(t, 2*time.Second))
			done <- err
		}()
		n.WaitFor(1, calls(script.Force))
		gate.Open()
		if err := <-done; !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("ForceUnlock: %v", err)
		}
		if got := len(n.Commands(calls(script.Force))); got != 1 {
			t.Errorf("sent %d times", got)
		}
	})
	t.Run("acquire", func(t *testing.T) {
		t.Parallel()
		n, e, ask, gate := demoted(t)
		n.OnNext(1, calls(script.Acquire), fakenode.Drop()) // granted, the answer is lost
		n.On(calls(script.Release), fakenode.Int(script.Done))
		ask()
		f := e.Mutex("x").TryLockAsync(ctxT(t))
		n.WaitFor(1, calls(script.Acquire))
		gate.Open()
		if _, err := f.Await(ctxT(t)); !errors.Is(err, ErrNotAcquired) {
			t.Errorf("TryLock: %v", err)
		}
		n.WaitFor(1, calls(script.Release))
		if e.Stats().Burned != 1 {
			t.Error("the owner is not burned")
		}
	})
}

// The bytes of an acquire arrive after an outage that was longer than anybody reckoned
// with: its owner is still released.
func TestBurnedOwnerIsRememberedThroughALongOutage(t *testing.T) {
	t.Parallel()
	s, p, e := behind(t, leaseOf(500*time.Millisecond))
	cut := p.CutBeforeRequest(acquireOf("x"))
	f := e.Mutex("x").TryLockAsync(ctxT(t))
	cut.Wait(1)
	p.Down()
	if _, err := f.Await(ctxT(t)); err == nil {
		t.Fatal("acquired")
	}
	burnt := e.burnedForTest(t, "x")
	down := e.clock.Now()
	eventually(t, "two leases and more have passed, and all timers", func() bool { return e.clock.Now().Sub(down) > 5*time.Second })
	p.Up()
	eventually(t, "the lane is up", func() bool { return connected(e).Up(resp.RoleLane, 0) })
	if got := s.Do("EVALSHA", script.Acquire.SHA, "1", "x", "60000", burnt); got != int64(script.Granted) {
		t.Fatalf("the stale acquire: %v", got)
	}
	eventually(t, "the phantom is released", func() bool { return s.Do("EXISTS", "x") == int64(0) })
}

func TestExtendThatIsRefusedForNowIsRepeatedSeldom(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		e := open(t, s.URL(), func(c *Config) { c.CommandTimeout = time.Second })
		h := mustLock(t, e.Mutex("x"), Lease(30*time.Second))
		s.Do("CONFIG", "RESETSTAT")
		s.Do("CONFIG", "SET", "min-replicas-to-write", "1")
		if err := h.Extend(ctxT(t), time.Minute); !errors.Is(err, ErrUnavailable) {
			t.Error(err)
		}
		if n := s.CommandStats()["evalsha"]; n > 50 {
			t.Errorf("%d times within a second", n)
		}
		s.Do("CONFIG", "SET", "min-replicas-to-write", "0")
		mustUnlock(t, h)
	})
}

// The answer to a leave was lost, and its copy finds nothing: then the outer hold is
// gone, too, for a leave removes nothing.
func TestLeaveThatFindsNothingEndsTheOuterHold(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	n.On(calls(script.Acquire), fakenode.Int(script.Granted))
	n.On(calls(script.Reenter), fakenode.Int(script.Granted))
	n.On(calls(script.Leave), fakenode.Int(script.NotThere))
	n.OnNext(1, calls(script.Leave), fakenode.Close())
	n.On(calls(script.Release), fakenode.Int(script.NotThere))
	e := open(t, "redis://"+n.Addr()+"?lanes=1&close_timeout=500ms")
	outer := mustLock(t, e.Mutex("x"), Lease(time.Hour))
	inner, err := e.Mutex("x").Lock(outer.Context(ctxT(t)))
	if err != nil {
		t.Fatal(err)
	}
	if err := inner.Unlock(ctxT(t)); !errors.Is(err, ErrLost) {
		t.Errorf("Unlock of the inner one: %v", err)
	}
	<-outer.Done()
	if err := outer.Err(); !errors.Is(err, ErrLost) {
		t.Errorf("the outer one: %v", err)
	}
}

// A release that ASK sends nowhere ends with its lease, like any other.
func TestReleaseThatCannotReachTheOtherNodeEndsWithItsLease(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		n := fakenode.New(t)
		host, port, _ := net.SplitHostPort(n.Addr())
		n.On(fakenode.Is("CLUSTER", "SLOTS"), fakenode.Raw(fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)))
		n.On(calls(script.Acquire), fakenode.Int(script.Granted))
		n.On(calls(script.Release), fakenode.Error("ASK 5 127.0.0.1:1"))
		e := open(t, "redis+cluster://"+n.Addr()+"?sharding=off&close_timeout=500ms")
		h := mustLock(t, e.Mutex("x"), Lease(600*time.Millisecond))
		if err := h.Unlock(ctxT(t)); !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, ErrUnavailable) {
			t.Errorf("%v", err)
		}
	})
}

// Nothing is held and nobody waits any more: there is nothing to wait for.
func TestStalledNameHoldsUpNeitherCloseNorShutdown(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(*Engine) error{
		"Close":    (*Engine).Close,
		"Shutdown": func(e *Engine) error { return e.Shutdown(within(t, 3*time.Second)) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			for range 10 {
				if stalledNameIsGivenUp(t, end) {
					return
				}
			}
			t.Error("each time a try was out when the server died")
		})
	}
}

// stalledNameIsGivenUp ends an engine whose only name is stalled. It reports false if a
// try was out when the server died: then its outcome is waited for, and rightly so.
func stalledNameIsGivenUp(t *testing.T, end func(*Engine) error) bool {
	t.Helper()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL(), func(c *Config) { c.CloseTimeout = 100 * time.Millisecond })
	mustLock(t, other.Mutex("x"))
	f := e.Mutex("x").LockAsync(ctxT(t))
	eventually(t, "it listens, and was refused once more after that", func() bool { return e.sleepsOnMessagesForTest("x") })
	s.Kill()
	waits := false
	eventually(t, "its name is stalled, and recovery has given it up", func() bool {
		for _, l := range e.table.Recovery.View().Lanes {
			if waits = len(l.Urgent) > 0; waits || len(l.Tries) == 1 && !l.Kicked {
				return true
			}
		}
		return false
	})
	if waits {
		_ = e.Close()
		return false
	}
	if err := end(e); err != nil {
		t.Error(err)
	}
	if _, err := f.Await(context.Background()); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	return true
}

// sleepsOnMessagesForTest reports whether the head of a name sleeps, and the server has
// confirmed its subscription.
func (e *Engine) sleepsOnMessagesForTest(name string) bool {
	m := e.Mutex(name)
	sh := e.table.Shard(m.route)
	sh.Lock()
	defer sh.Unlock()
	r := sh.Find(m.key)
	if r == nil {
		return false
	}
	v := r.View()
	return v.Asleep && v.Confirmed && v.What == machine.Nothing
}

// The former primary follows one that does not let it in, and refuses everything with
// MASTERDOWN: that is what a replica says.
func TestFormerPrimaryThatIsDownIsLeft(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t, 1)
	e := replicated(r).open(t)
	mustUnlock(t, mustLock(t, e.Mutex("x")))
	a, b := r.Servers()[0], r.Servers()[1]
	r.AwaitInStep()
	a.Do("CONFIG", "SET", "replica-serve-stale-data", "no")
	b.Do("REPLICAOF", "NO", "ONE")
	a.Do("REPLICAOF", "127.0.0.1", "1")
	mustUnlock(t, mustLock(t, e.Mutex("x")))
}

// Nothing of a password gets into an error, and none is taken for a host.
func TestListsOfHostsAreReadWithCare(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"redis+cluster://user:hunter2%40h1:7000,h2:7000",
		"redis+cluster://:hunter2",
		"redis+cluster://user:hunter2@h1:7000,user:hunter2@h2:7000",
		"redis+sentinel://h1,user:hunter2@h2/mymaster",
	} {
		c, err := ParseURL(url)
		if !errors.Is(err, ErrInvalid) || hasText(err, "hunter2") {
			t.Errorf("%s: %+v, %v", url, c.Addrs, err)
		}
	}
}
