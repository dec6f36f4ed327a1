package durability

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// Somebody has raised the lease on the primary, so that the renewals raise nothing, and
// write nothing that replicas could acknowledge: they must not count.
func TestRenewalThatRaisesNothingIsAcknowledgedAllTheSame(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]redistest.Option{"redis": nil, "valkey": {redistest.OnValkey(t)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Steady(t, func(t testing.TB) {
				f := newFleet(t, 1, opts...)
				e := f.open(testkit.LeaseOf(1500*time.Millisecond), testkit.AckTimeout(100*time.Millisecond))
				h := mustLockAcked(t, e.Mutex("x"), engine.Acked(engine.AllReplicas))
				f.links[0].Hold()
				if _, err := e.Mutex("x").Lock(h.Context(testkit.Ctx(t)), engine.Lease(time.Hour), engine.Acked(0)); err != nil {
					t.Fatal(err)
				}
				until := h.ValidUntil()
				<-h.Done()
				if moved := time.Since(until); moved > 500*time.Millisecond {
					t.Errorf("without the replica it went on for %v", moved)
				}
				if err := h.Err(); !errors.Is(err, engine.ErrLost) {
					t.Error(err)
				}
			})
		})
	}
}

// The same with Extend, on a connection that has written nothing yet.
func TestExtendThatRaisesNothingIsAcknowledgedAllTheSame(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		f := newFleet(t, 1, redistest.OnValkey(t))
		proxy := faultproxy.New(t, "tcp", f.primary.Addr())
		e := testkit.Open(t, "redis://"+proxy.Addr(), testkit.AckTimeout(200*time.Millisecond))
		h := mustLockAcked(t, e.Mutex("x"), engine.Lease(10*time.Second), engine.Acked(engine.AllReplicas))
		f.links[0].Hold()
		testkit.WantNotAcked(t, h.Extend(testkit.Ctx(t), 40*time.Second), 0, 1)
		until := h.ValidUntil()
		proxy.Cut(faultproxy.Carried("WAIT"))
		testkit.Eventually(t, "it is connected again, and says no", func() bool {
			err := h.Extend(testkit.Ctx(t), 20*time.Second)
			if err == nil {
				t.Fatalf("acknowledged by nobody; %v more", h.ValidUntil().Sub(until))
			}
			return errors.Is(err, engine.ErrNotAcked)
		})
		testkit.MustUnlock(t, h)
	})
}

// A hold that follows its parent's lease cannot be more durable than that.
func TestReentryCannotAskForMoreThanItsParent(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	e := f.open()
	m := e.Mutex("x")
	outer := testkit.MustLock(t, m, engine.Acked(0))
	for _, want := range []engine.Replicas{engine.AllReplicas, engine.MajorityOfReplicas, 1} {
		if _, err := m.Lock(outer.Context(testkit.Ctx(t)), engine.Acked(want)); !errors.Is(err, engine.ErrInvalid) || !errors.Is(err, engine.ErrNotAcquired) {
			t.Errorf("Acked(%d): %v", want, err)
		}
	}
	inner, err := m.Lock(outer.Context(testkit.Ctx(t)), engine.Acked(engine.AllReplicas), engine.Lease(5*time.Second))
	if err != nil || inner.Acked() != 1 {
		t.Fatalf("with a lease of its own: %v", err)
	}
	testkit.MustUnlock(t, inner)
	testkit.MustUnlock(t, outer)
}

// endsHold is a context that unlocks the hold that it carries when it is joined.
type endsHold struct {
	context.Context
	h    *engine.Hold
	once *sync.Once
}

func (c endsHold) Done() <-chan struct{} {
	c.once.Do(func() { c.h.UnlockAsync() })
	return nil
}

// The hold ends between the look at the context and the shard's lock: what would have
// been its re-entry is a lock of its own, with the engine's demands.
func TestReentryThatComesTooLateIsAsDurableAsAnyLock(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	e := f.open(func(c *engine.Config) { c.Replicas = engine.AllReplicas })
	for i := range 20 {
		m := e.Mutex(fmt.Sprint("x", i))
		outer := testkit.MustLock(t, m, engine.Acked(0))
		h, err := m.LockAsync(endsHold{outer.Context(context.Background()), outer, new(sync.Once)}).Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		if h.Acked() != 1 {
			t.Fatalf("%d acknowledged", h.Acked())
		}
		testkit.MustUnlock(t, h)
	}
}

// Close takes no more locks, though thousands were asked for.
func TestCloseDoesNotWaitForQueuedAcquisitions(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		f := newFleet(t, 1)
		e := f.open(testkit.AckTimeout(300*time.Millisecond), func(c *engine.Config) { c.CloseTimeout = 5 * time.Second })
		testkit.MustUnlock(t, mustLockAcked(t, e.Mutex("x"), engine.Acked(1)))
		f.links[0].Hold()
		var futures []*engine.Future[*engine.Hold]
		for i := range 6000 { // two dozen groups
			futures = append(futures, e.Mutex(fmt.Sprint("x", i)).LockAsync(testkit.Ctx(t), engine.Acked(1)))
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		for _, future := range futures {
			if _, err := future.Await(testkit.Ctx(t)); !errors.Is(err, engine.ErrNotAcquired) {
				t.Fatal(err)
			}
		}
		testkit.Clean(t, f.primary)
	})
}

// One silent replica must not cost those their renewals who do not ask for it.
func TestSilentReplicaCostsOnlyThoseWhoAskForIt(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		f := newFleet(t, 2)
		e := f.open(testkit.LeaseOf(1500*time.Millisecond), testkit.AckTimeout(time.Minute))
		all, one := testkit.MustLock(t, e.Mutex("all"), engine.Acked(engine.AllReplicas)), testkit.MustLock(t, e.Mutex("one"), engine.Acked(1))
		f.links[0].Hold()
		<-all.Done()
		n := e.Stats().Renewed
		testkit.Eventually(t, "the other is renewed on and on", func() bool { return e.Stats().Renewed > n+4 })
		if err := one.Err(); err != nil {
			t.Error(err)
		}
		testkit.MustUnlock(t, one)
	})
}
