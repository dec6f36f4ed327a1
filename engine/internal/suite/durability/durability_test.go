package durability

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// fleet is a primary with replicas, each over a link of its own.
type fleet struct {
	*redistest.Replicated
	t       testing.TB
	primary *redistest.Server
	links   []*redistest.Link
}

func newFleet(t testing.TB, replicas int, opts ...redistest.Option) *fleet {
	t.Helper()
	// A replica that a test holds up must not be given up for that.
	r := redistest.StartReplicated(t, replicas, append(opts, redistest.Line("repl-timeout 300"))...)
	f := &fleet{Replicated: r, t: t, primary: r.Servers()[0]}
	for _, s := range r.Servers()[1:] {
		f.links = append(f.links, r.Through(s, f.primary))
	}
	return f
}

// open connects an engine that is patient with its replicas, if no change says otherwise.
func (f *fleet) open(change ...func(*engine.Config)) *engine.Engine {
	f.t.Helper()
	return testkit.Open(f.t, f.primary.URL(), append([]func(*engine.Config){testkit.PatientWithReplicas}, change...)...)
}

// scripts counts those that the primary has executed.
func (f *fleet) scripts() int64 {
	n := f.primary.CommandStats()
	return n["evalsha"] + n["eval"]
}

// mustLockAcked is testkit.MustLock, again while too few acknowledge it: a replica of a busy machine
// may need longer than the AckTimeout.
func mustLockAcked(t testing.TB, m engine.Mutex, opts ...engine.Option) (h *engine.Hold) {
	t.Helper()
	testkit.Eventually(t, "it is acknowledged", func() bool {
		var err error
		if h, err = m.Lock(testkit.Ctx(t), opts...); err != nil && !errors.Is(err, engine.ErrNotAcked) {
			t.Fatalf("Lock(%q): %v", m.Name(), err)
		}
		return err == nil
	})
	return h
}

func TestGrantedLockIsOnTheReplicasThatWereAskedFor(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	e := f.open()
	for i, test := range []struct {
		want  engine.Replicas
		least int
	}{{engine.AllReplicas, 2}, {engine.MajorityOfReplicas, 2}, {2, 2}, {1, 1}} {
		for round := range 20 {
			name := fmt.Sprint("x", i, ".", round)
			h := testkit.MustLock(t, e.Mutex(name), engine.Acked(test.want))
			if h.Acked() < test.least {
				t.Fatalf("%v: %d acknowledged", test.want, h.Acked())
			}
			there := 0
			for _, s := range f.Servers()[1:] {
				if s.Do("HEXISTS", name, h.Owner()) == int64(1) {
					there++
				}
			}
			if there < test.least {
				t.Fatalf("%v: the lock is on %d replicas", test.want, there)
			}
			testkit.MustUnlock(t, h)
		}
	}
	testkit.Clean(t, f.primary, e)
}

func TestTooFewAcknowledgementsGiveTheLockBackOnce(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		f := newFleet(t, 2)
		e := f.open(testkit.AckTimeout(time.Second))
		testkit.MustUnlock(t, mustLockAcked(t, e.Mutex("x"), engine.Acked(engine.AllReplicas))) // all connections are up
		f.links[0].Hold()
		before := e.Stats().NotAcked
		for i, want := range []engine.Replicas{engine.AllReplicas, engine.MajorityOfReplicas, 2} {
			for _, lock := range []func(engine.Mutex, context.Context, ...engine.Option) (*engine.Hold, error){engine.Mutex.Lock, engine.Mutex.TryLock} {
				before := f.scripts()
				compensated := e.Stats().Compensations
				_, err := lock(e.Mutex("x"), testkit.Ctx(t), engine.Acked(want))
				testkit.WantNotAcked(t, err, 1, 2)
				if !errors.Is(err, engine.ErrNotAcquired) {
					t.Errorf("%v", err)
				}
				testkit.Clean(t, f.primary, e)
				testkit.Eventually(t, "the engine knows", func() bool { return e.Stats().InFlight == 0 })
				if n := f.scripts() - before; n != 2 {
					t.Errorf("%d: %d scripts, want one acquire and one release", i, n)
				}
				if n := e.Stats().Compensations - compensated; n != 1 {
					t.Errorf("%d: %d compensations", i, n)
				}
			}
		}
		if n := e.Stats().NotAcked - before; n != 6 {
			t.Errorf("NotAcked %d", n)
		}
		// One is enough for a caller that asks for one, and so is none.
		testkit.MustUnlock(t, mustLockAcked(t, e.Mutex("x"), engine.Acked(1)))
		testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x")))
		f.links[0].Release()
		testkit.Eventually(t, "the replica keeps up again", func() bool {
			h, err := e.Mutex("x").Lock(testkit.Ctx(t), engine.Acked(engine.AllReplicas))
			if err == nil {
				testkit.MustUnlock(t, h)
			}
			return err == nil
		})
		testkit.Clean(t, f.primary, e)
	})
}

// It is known at once, so nobody waits out an hour for it.
func TestNoReplicaAttachedIsAnErrorAtOnce(t *testing.T) {
	t.Parallel()
	e := testkit.Open(t, testkit.Server(t).URL(), testkit.AckTimeout(time.Hour))
	for _, want := range []engine.Replicas{engine.AllReplicas, engine.MajorityOfReplicas} {
		_, err := e.Mutex("x").Lock(testkit.Ctx(t), engine.Acked(want))
		testkit.WantNotAcked(t, err, 0, 1)
	}
	_, err := e.Mutex("x").Lock(testkit.Ctx(t), engine.Acked(3))
	testkit.WantNotAcked(t, err, 0, 3)
	testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x")))
}

// A replica that comes later counts from then on.
func TestReplicaThatIsAttachedLaterIsWaitedFor(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		f := newFleet(t, 1)
		e := f.open(testkit.AckTimeout(time.Second))
		h := mustLockAcked(t, e.Mutex("x"), engine.Acked(engine.AllReplicas))
		if h.Acked() != 1 {
			t.Fatalf("%d acknowledged", h.Acked())
		}
		testkit.MustUnlock(t, h)
		late := redistest.Start(t)
		l := f.Through(late, f.primary)
		// It is attached, but is sent nothing before it has reported, within a second.
		testkit.Eventually(t, "it acknowledges", func() bool {
			h, err := e.Mutex("x").Lock(testkit.Ctx(t), engine.Acked(engine.AllReplicas))
			if err != nil {
				testkit.WantNotAcked(t, err, 1, 2)
				return false
			}
			if h.Acked() != 2 {
				t.Fatalf("%d acknowledged after another was attached", h.Acked())
			}
			testkit.MustUnlock(t, h)
			return true
		})
		l.Hold()
		_, err := e.Mutex("x").Lock(testkit.Ctx(t), engine.Acked(engine.AllReplicas))
		testkit.WantNotAcked(t, err, 1, 2)
	})
}

// The default of the engine holds for every acquisition that does not say otherwise.
func TestConfigReplicasIsTheDefault(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	e := testkit.Open(t, f.primary.URL()+"?replicas=all&ack_timeout=20s")
	h := testkit.MustLock(t, e.Mutex("x"))
	if h.Acked() != 1 {
		t.Errorf("%d acknowledged", h.Acked())
	}
	inner, err := e.Mutex("x").Lock(h.Context(testkit.Ctx(t)))
	if err != nil || inner.Acked() != 1 {
		t.Errorf("a re-entry: %v", err)
	}
	testkit.MustUnlock(t, inner)
	testkit.MustUnlock(t, h)
	waits := f.primary.CommandStats()["wait"]
	h = testkit.MustLock(t, e.Mutex("x"), engine.Acked(0))
	if n := f.primary.CommandStats()["wait"] - waits; n != 0 || h.Acked() != 0 {
		t.Errorf("Acked(0) sent %d WAITs, %d acknowledged", n, h.Acked())
	}
	testkit.MustUnlock(t, h)
}

// While the replicas are silent the primary raises the lease at every renewal, and the
// hold still ends: a replica that is promoted lets it run out.
func TestRenewalsCountWithAcknowledgementsOnly(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		f := newFleet(t, 2)
		e := f.open(testkit.LeaseOf(1200*time.Millisecond), testkit.AckTimeout(100*time.Millisecond))
		durable := mustLockAcked(t, e.Mutex("durable"), engine.Acked(engine.AllReplicas))
		one := mustLockAcked(t, e.Mutex("one"), engine.Acked(1))
		plain := testkit.MustLock(t, e.Mutex("plain"))
		first := durable.ValidUntil()
		testkit.Eventually(t, "it is renewed", func() bool { return durable.ValidUntil().After(first.Add(time.Second)) })
		f.links[1].Hold()
		// A renewal may be out, acknowledged already.
		waits := f.primary.CommandStats()["wait"]
		testkit.Eventually(t, "renewals go on", func() bool { return f.primary.CommandStats()["wait"] > waits+1 })
		last := durable.ValidUntil()
		<-durable.Done()
		var lost *engine.LostError
		if err := durable.Err(); !errors.As(err, &lost) || lost.Reason != engine.NotRenewed {
			t.Errorf("%v", err)
		}
		if left := time.Until(last); left > 20*time.Millisecond {
			t.Errorf("it ended %v before its time", left)
		}
		if err := errors.Join(one.Err(), plain.Err()); err != nil {
			t.Errorf("others were lost, too: %v", err)
		}
		if one.Acked() != 1 || !one.ValidUntil().After(last) {
			t.Errorf("one: %d acknowledged, valid until %v, after %v", one.Acked(), one.ValidUntil(), last)
		}
		testkit.Eventually(t, "the lost one is released", func() bool { return f.primary.Do("EXISTS", "durable") == int64(0) })
		testkit.MustUnlock(t, one)
		testkit.MustUnlock(t, plain)
	})
}

// What was renewed in vain for a while is kept if the replicas come back in time.
func TestHoldOutlivesASilenceOfTheReplicas(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		f := newFleet(t, 1)
		e := f.open(testkit.LeaseOf(3*time.Second), testkit.AckTimeout(200*time.Millisecond))
		var holds []*engine.Hold
		for i := range 200 {
			holds = append(holds, mustLockAcked(t, e.Mutex(fmt.Sprint("x", i)), engine.Acked(engine.AllReplicas)))
		}
		f.links[0].Hold()
		waits := f.primary.CommandStats()["wait"]
		testkit.Eventually(t, "renewals fail", func() bool { return f.primary.CommandStats()["wait"] > waits+3 })
		f.links[0].Release()
		n := e.Stats().Renewed
		testkit.Eventually(t, "all are renewed twice", func() bool { return e.Stats().Renewed >= n+uint64(2*len(holds)) })
		for _, h := range holds {
			if err := h.Err(); err != nil {
				t.Fatalf("%s: %v", h.Name(), err)
			}
			testkit.MustUnlock(t, h)
		}
		testkit.Clean(t, f.primary, e)
	})
}

// A lock that is gone is told of, acknowledged or not.
func TestRemovalIsNoticedWhileTheReplicasAreSilent(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		f := newFleet(t, 1)
		e := f.open(testkit.LeaseOf(20*time.Second), testkit.AckTimeout(200*time.Millisecond))
		h := mustLockAcked(t, e.Mutex("x"), engine.Acked(1))
		f.links[0].Hold()
		f.primary.Do("DEL", "x")
		testkit.RenewAll(e)
		<-h.Done()
		var lost *engine.LostError
		if err := h.Err(); !errors.As(err, &lost) || lost.Reason != engine.RemovedOnServer {
			t.Errorf("%v", err)
		}
	})
}

func TestExtendCountsWithAcknowledgementsOnly(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		f := newFleet(t, 1)
		e := f.open(testkit.AckTimeout(2 * time.Second))
		h := mustLockAcked(t, e.Mutex("x"), engine.Lease(10*time.Second), engine.Acked(engine.AllReplicas))
		if err := h.Extend(testkit.Ctx(t), 20*time.Second); err != nil || h.Acked() != 1 {
			t.Fatal(err)
		}
		before := h.ValidUntil()
		if left := time.Until(before); left < 15*time.Second {
			t.Errorf("%v left after Extend", left)
		}
		f.links[0].Hold()
		err := h.Extend(testkit.Ctx(t), 40*time.Second)
		testkit.WantNotAcked(t, err, 0, 1)
		if after := h.ValidUntil(); after.Sub(before).Abs() > time.Second || h.Err() != nil {
			t.Errorf("valid until %v, was %v; %v", after, before, h.Err())
		}
		testkit.MustUnlock(t, h)
		testkit.Clean(t, f.primary, e)
	})
}

func TestReentryCountsWithAcknowledgementsOnly(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		f := newFleet(t, 1)
		e := f.open(testkit.AckTimeout(2 * time.Second))
		m := e.Mutex("x")
		outer := mustLockAcked(t, m, engine.Acked(1))
		f.links[0].Hold()
		_, err := m.Lock(outer.Context(testkit.Ctx(t)))
		testkit.WantNotAcked(t, err, 0, 1)
		inner, err := m.Lock(outer.Context(testkit.Ctx(t)), engine.Acked(0))
		if err != nil {
			t.Fatalf("with Acked(0): %v", err)
		}
		if n := testkit.Fields(t, f.primary, "x")[outer.Owner()]; n != "2" {
			t.Errorf("the count is %s", n)
		}
		testkit.MustUnlock(t, inner)
		if err := outer.Err(); err != nil {
			t.Error(err)
		}
		testkit.MustUnlock(t, outer)
		testkit.Clean(t, f.primary, e)
	})
}

// WAIT blocks its connection for an hour here. Nobody else is on it.
func TestPlainOperationsPassThoseThatWaitForReplicas(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		f := newFleet(t, 1)
		e := f.open(testkit.AckTimeout(time.Hour), testkit.LeaseOf(3*time.Second))
		testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x"), engine.Acked(1)))
		f.links[0].Hold()
		var stuck []*engine.Future[*engine.Hold]
		for i := range 20 {
			stuck = append(stuck, e.Mutex(fmt.Sprint("stuck", i)).LockAsync(testkit.Ctx(t), engine.Acked(1), engine.Lease(time.Minute)))
		}
		testkit.Eventually(t, "one of them is on the server", func() bool { return f.primary.Do("DBSIZE") != int64(0) })
		held := testkit.MustLock(t, e.Mutex("held"))
		for i := range 1000 {
			testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex(fmt.Sprint("plain", i%10))))
		}
		renewed := e.Stats().Renewed
		testkit.Eventually(t, "a plain hold is renewed", func() bool { return e.Stats().Renewed > renewed+1 })
		for _, s := range stuck {
			if _, err := s.Result(); !errors.Is(err, engine.ErrPending) {
				t.Fatalf("acknowledged by nobody, and: %v", err)
			}
		}
		f.links[0].Release()
		holds, err := engine.AwaitAll(testkit.Ctx(t), stuck...)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range append(holds, held) {
			testkit.MustUnlock(t, h)
		}
		testkit.Clean(t, f.primary, e)
	})
}

// The acquisition is over at once; what the server granted is given back when the
// server has told.
func TestCancelledWhileReplicasAreWaitedFor(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		f := newFleet(t, 1)
		e := f.open(testkit.AckTimeout(300 * time.Millisecond))
		testkit.MustUnlock(t, mustLockAcked(t, e.Mutex("x"), engine.Acked(1)))
		f.links[0].Hold()
		ctx, cancel := context.WithCancelCause(testkit.Ctx(t))
		future := e.Mutex("x").LockAsync(ctx, engine.Acked(1))
		testkit.Eventually(t, "the primary has granted it", func() bool { return f.primary.Do("EXISTS", "x") == int64(1) })
		why := errors.New("changed my mind")
		cancel(why)
		if _, err := future.Await(testkit.Ctx(t)); !errors.Is(err, why) || !errors.Is(err, engine.ErrNotAcquired) {
			t.Fatal(err)
		}
		testkit.Clean(t, f.primary, e)
	})
}

// The connection dies with the WAIT on it: the lock is there, and nobody knows who
// has it.
func TestConnectionLostWhileReplicasAreWaitedFor(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	proxy := faultproxy.New(t, "tcp", f.primary.Addr())
	e := testkit.Open(t, "redis://"+proxy.Addr(), testkit.PatientWithReplicas)
	testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x"), engine.Acked(1)))
	f.links[0].Hold() // so that the answers before it arrive
	trap := proxy.Watch(faultproxy.Is("WAIT"))
	future := e.Mutex("x").LockAsync(testkit.Ctx(t), engine.Acked(1))
	trap.Wait(1)
	testkit.Eventually(t, "the primary has granted it", func() bool { return f.primary.Do("EXISTS", "x") == int64(1) })
	proxy.Cut(faultproxy.Carried("WAIT"))
	f.links[0].Release()
	h, err := future.Await(testkit.Ctx(t))
	switch {
	case err == nil: // its answer was lost, too: it was in doubt, and tried again
		testkit.MustUnlock(t, h)
	case !errors.Is(err, engine.ErrNotAcked) || !errors.Is(err, engine.ErrNotAcquired):
		t.Fatal(err)
	}
	testkit.Clean(t, f.primary, e)
}

// Two services contend for the same locks, with holders on all replicas.
func TestDurableLocksAreHandedOnLikeOthers(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	all := func(c *engine.Config) { c.Replicas = engine.AllReplicas }
	a, b := f.open(all), f.open(all)
	at := &testkit.Site{Servers: func() []*redistest.Server { return []*redistest.Server{f.primary} }}
	testkit.Contends(t, at, a, b)
	testkit.HandsOver(t, at, a, b)
	waits := f.primary.CommandStats()["wait"]
	if waits == 0 {
		t.Error("no WAIT at all")
	}
	testkit.Clean(t, f.primary, a, b)
}

// Waiters of one process pass a durable lock on by a command each, which the replicas
// acknowledge. When too few do, the Unlock counts, and the next one is told.
func TestDurableLockIsPassedOnInsideAProcess(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		f := newFleet(t, 1)
		e := f.open(testkit.AckTimeout(2*time.Second), func(c *engine.Config) { c.HandOverTime = time.Minute })
		m := e.Mutex("x")
		h := mustLockAcked(t, m, engine.Acked(1))
		const n = 10
		var waiting []*engine.Future[*engine.Hold]
		for range n {
			waiting = append(waiting, m.LockAsync(testkit.Ctx(t), engine.Acked(1)))
		}
		replica := f.Servers()[1]
		for _, next := range waiting[:n-1] {
			testkit.MustUnlock(t, h)
			var err error
			if h, err = next.Await(testkit.Ctx(t)); err != nil {
				t.Fatal(err)
			}
			if h.Acked() != 1 || replica.Do("HLEN", "x") != int64(1) || replica.Do("HEXISTS", "x", h.Owner()) != int64(1) {
				t.Fatalf("%d acknowledged, the replica has %v", h.Acked(), replica.Do("HGETALL", "x"))
			}
		}
		if passed := e.Stats().HandedOver; passed != n-1 {
			t.Errorf("%d passed on", passed)
		}
		f.links[0].Hold()
		testkit.MustUnlock(t, h)
		_, err := waiting[n-1].Await(testkit.Ctx(t))
		testkit.WantNotAcked(t, err, 0, 1)
		f.links[0].Release()
		testkit.Eventually(t, "the lock is free", func() bool { return f.primary.Do("EXISTS", "x") == int64(0) })
		testkit.Clean(t, f.primary, e)
	})
}

// Group commit: many acquisitions share a WAIT.
func TestManyDurableAcquisitionsShareWaits(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	e := f.open()
	testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x"), engine.Acked(1)))
	before := f.primary.CommandStats()["wait"]
	const many = 2000
	var futures []*engine.Future[*engine.Hold]
	for i := range many {
		futures = append(futures, e.Mutex(fmt.Sprint("x", i)).LockAsync(testkit.Ctx(t), engine.Acked(engine.AllReplicas)))
	}
	holds, err := engine.AwaitAll(testkit.Ctx(t), futures...)
	if err != nil {
		t.Fatal(err)
	}
	if n := f.primary.CommandStats()["wait"] - before; n > many/10 {
		t.Errorf("%d WAITs for %d acquisitions", n, many)
	}
	for _, h := range holds {
		testkit.MustUnlock(t, h)
	}
	testkit.Clean(t, f.primary, e)
}

// The password does not appear, the name does, and what to do.
func TestAckErrorSaysWhatToDo(t *testing.T) {
	t.Parallel()
	e := testkit.Open(t, testkit.Server(t).URL())
	_, err := e.Mutex("orders").Lock(testkit.Ctx(t), engine.Acked(2))
	for _, text := range []string{"orders", "0 of 2 replicas", "1s", "attached"} {
		if !testkit.HasText(err, text) {
			t.Errorf("%q lacks %q", err, text)
		}
	}
	if strings.Contains(fmt.Sprint(err), "\n") {
		t.Error("more than a line")
	}
}
