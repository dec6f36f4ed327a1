package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

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
			steady(t, func(t testing.TB) {
				f := newFleet(t, 1, opts...)
				e := f.open(leaseOf(1500*time.Millisecond), ackTimeout(100*time.Millisecond))
				h := mustLock(t, e.Mutex("x"), Acked(AllReplicas))
				f.links[0].Hold()
				if _, err := e.Mutex("x").Lock(h.Context(ctxT(t)), Lease(time.Hour), Acked(0)); err != nil {
					t.Fatal(err)
				}
				until := h.ValidUntil()
				<-h.Done()
				if moved := time.Since(until); moved > 500*time.Millisecond {
					t.Errorf("without the replica it went on for %v", moved)
				}
				if err := h.Err(); !errors.Is(err, ErrLost) {
					t.Error(err)
				}
			})
		})
	}
}

// The same with Extend, on a connection that has written nothing yet.
func TestExtendThatRaisesNothingIsAcknowledgedAllTheSame(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		f := newFleet(t, 1, redistest.OnValkey(t))
		proxy := faultproxy.New(t, "tcp", f.primary.Addr())
		e := open(t, "redis://"+proxy.Addr(), ackTimeout(200*time.Millisecond))
		h := mustLock(t, e.Mutex("x"), Lease(10*time.Second), Acked(AllReplicas))
		f.links[0].Hold()
		notAcked(t, h.Extend(ctxT(t), 40*time.Second), 0, 1)
		until := h.ValidUntil()
		proxy.Cut(faultproxy.Carried("WAIT"))
		eventually(t, "it is connected again, and says no", func() bool {
			err := h.Extend(ctxT(t), 20*time.Second)
			if err == nil {
				t.Fatalf("acknowledged by nobody; %v more", h.ValidUntil().Sub(until))
			}
			return errors.Is(err, ErrNotAcked)
		})
		mustUnlock(t, h)
	})
}

// A hold that follows its parent's lease cannot be more durable than that.
func TestReentryCannotAskForMoreThanItsParent(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	e := f.open()
	m := e.Mutex("x")
	outer := mustLock(t, m, Acked(0))
	for _, want := range []Replicas{AllReplicas, MajorityOfReplicas, 1} {
		if _, err := m.Lock(outer.Context(ctxT(t)), Acked(want)); !errors.Is(err, ErrInvalid) || !errors.Is(err, ErrNotAcquired) {
			t.Errorf("Acked(%d): %v", want, err)
		}
	}
	inner, err := m.Lock(outer.Context(ctxT(t)), Acked(AllReplicas), Lease(5*time.Second))
	if err != nil || inner.Acked() != 1 {
		t.Fatalf("with a lease of its own: %v", err)
	}
	mustUnlock(t, inner)
	mustUnlock(t, outer)
}

// endsHold is a context that unlocks the hold that it carries when it is joined.
type endsHold struct {
	context.Context
	h    *Hold
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
	e := f.open(func(c *Config) { c.Replicas = AllReplicas })
	for i := range 20 {
		m := e.Mutex(fmt.Sprint("x", i))
		outer := mustLock(t, m, Acked(0))
		h, err := m.LockAsync(endsHold{outer.Context(context.Background()), outer, new(sync.Once)}).Await(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		if h.Acked() != 1 {
			t.Fatalf("%d acknowledged", h.Acked())
		}
		mustUnlock(t, h)
	}
}

// With a silent replica a group takes AckTimeout, and those behind it wait for theirs.
func TestTryLockBehindAnswersThatDoNotComeEnds(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		f := newFleet(t, 1)
		e := f.open(ackTimeout(time.Minute), func(c *Config) { c.CommandTimeout = 300 * time.Millisecond })
		mustUnlock(t, mustLock(t, e.Mutex("x"), Acked(1)))
		f.links[0].Hold()
		stuck := e.Mutex("stuck").LockAsync(ctxT(t), Acked(1))
		eventually(t, "its WAIT is out", func() bool { return f.primary.Do("EXISTS", "stuck") == int64(1) })
		e.table.Machine.AckTimeout = 100 * time.Millisecond // as the deadline sees it
		_, err := e.Mutex("x").TryLock(ctxT(t), Acked(1))
		if !errors.Is(err, ErrUnavailable) || !errors.Is(err, ErrNotAcquired) {
			t.Errorf("%v", err)
		}
		if f.primary.Do("EXISTS", "x") != int64(0) {
			t.Error("it was sent, into the WAIT")
		}
		// So does Wait: nobody has said that somebody else holds the lock.
		_, err = e.Mutex("y").Lock(ctxT(t), Acked(1), Wait(50*time.Millisecond))
		if errors.Is(err, ErrHeld) || !errors.Is(err, ErrUnavailable) {
			t.Errorf("%v", err)
		}
		stuck.Abandon()
		f.links[0].Release()
		clean(t, f.primary, e)
	})
}

// Close takes no more locks, though thousands were asked for.
func TestCloseDoesNotWaitForQueuedAcquisitions(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		f := newFleet(t, 1)
		e := f.open(ackTimeout(300*time.Millisecond), func(c *Config) { c.CloseTimeout = 5 * time.Second })
		mustUnlock(t, mustLock(t, e.Mutex("x"), Acked(1)))
		f.links[0].Hold()
		var futures []*Future[*Hold]
		for i := range 6000 { // two dozen groups
			futures = append(futures, e.Mutex(fmt.Sprint("x", i)).LockAsync(ctxT(t), Acked(1)))
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		for _, future := range futures {
			if _, err := future.Await(ctxT(t)); !errors.Is(err, ErrNotAcquired) {
				t.Fatal(err)
			}
		}
		clean(t, f.primary)
	})
}

// One silent replica must not cost those their renewals who do not ask for it.
func TestSilentReplicaCostsOnlyThoseWhoAskForIt(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		f := newFleet(t, 2)
		e := f.open(leaseOf(1500*time.Millisecond), ackTimeout(time.Minute))
		all, one := mustLock(t, e.Mutex("all"), Acked(AllReplicas)), mustLock(t, e.Mutex("one"), Acked(1))
		f.links[0].Hold()
		<-all.Done()
		n := e.Stats().Renewed
		eventually(t, "the other is renewed on and on", func() bool { return e.Stats().Renewed > n+4 })
		if err := one.Err(); err != nil {
			t.Error(err)
		}
		mustUnlock(t, one)
	})
}

// A re-entry without a Lease lasts as long as the hold that it re-enters, and so its
// replicas are those of the latest renewal of that.
func TestAckedOfAReentryIsThatOfTheLeaseThatItFollows(t *testing.T) {
	t.Parallel()
	e := open(t, server(t).URL())
	h := mustLock(t, e.Mutex("x"))
	child := mustReenter(t, e.Mutex("x"), mustReenter(t, e.Mutex("x"), h))
	fixed := mustReenter(t, e.Mutex("x"), child, Lease(time.Minute))
	now := e.clock.Now()
	h.h.Subject().Renewed(now, now, e.cfg.Lease, 2)
	if h.Acked() != 2 || child.Acked() != 2 || fixed.Acked() != 0 {
		t.Errorf("acknowledged by %d, the re-entry by %d, one with a lease of its own by %d", h.Acked(), child.Acked(), fixed.Acked())
	}
}
