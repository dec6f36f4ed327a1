package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

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
func (f *fleet) open(change ...func(*Config)) *Engine {
	f.t.Helper()
	return open(f.t, f.primary.URL(), append([]func(*Config){patientWithReplicas}, change...)...)
}

// scripts counts those that the primary has executed.
func (f *fleet) scripts() int64 {
	n := f.primary.CommandStats()
	return n["evalsha"] + n["eval"]
}

func ackTimeout(d time.Duration) func(*Config) { return func(c *Config) { c.AckTimeout = d } }

// patientWithReplicas is for tests that do not say otherwise: on a busy machine replicas may
// take long to acknowledge.
func patientWithReplicas(c *Config) { setDefault(&c.AckTimeout, limit) }

// notAcked fails the test unless err says so many of so many.
func notAcked(t testing.TB, err error, acked, wanted int) {
	t.Helper()
	var short *AckError
	if !errors.As(err, &short) || !errors.Is(err, ErrNotAcked) || short.Acked != acked || short.Wanted != wanted {
		t.Fatalf("want %d of %d replicas, got: %v", acked, wanted, err)
	}
	if text := fmt.Sprintf("%d of %d replicas", acked, wanted); !hasText(err, text) {
		t.Errorf("%q does not say %q", err, text)
	}
}

func TestGrantedLockIsOnTheReplicasThatWereAskedFor(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	e := f.open()
	for i, test := range []struct {
		want  Replicas
		least int
	}{{AllReplicas, 2}, {MajorityOfReplicas, 2}, {2, 2}, {1, 1}} {
		for round := range 20 {
			name := fmt.Sprint("x", i, ".", round)
			h := mustLock(t, e.Mutex(name), Acked(test.want))
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
			mustUnlock(t, h)
		}
	}
	clean(t, f.primary, e)
}

func TestTooFewAcknowledgementsGiveTheLockBackOnce(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		f := newFleet(t, 2)
		e := f.open(ackTimeout(500 * time.Millisecond))
		mustUnlock(t, mustLock(t, e.Mutex("x"), Acked(AllReplicas))) // all connections are up
		f.links[0].Hold()
		for i, want := range []Replicas{AllReplicas, MajorityOfReplicas, 2} {
			for _, lock := range []func(Mutex, context.Context, ...Option) (*Hold, error){Mutex.Lock, Mutex.TryLock} {
				before := f.scripts()
				compensated := e.Stats().Compensations
				_, err := lock(e.Mutex("x"), ctxT(t), Acked(want))
				notAcked(t, err, 1, 2)
				if !errors.Is(err, ErrNotAcquired) {
					t.Errorf("%v", err)
				}
				clean(t, f.primary, e)
				eventually(t, "the engine knows", func() bool { return e.Stats().InFlight == 0 })
				if n := f.scripts() - before; n != 2 {
					t.Errorf("%d: %d scripts, want one acquire and one release", i, n)
				}
				if n := e.Stats().Compensations - compensated; n != 1 {
					t.Errorf("%d: %d compensations", i, n)
				}
			}
		}
		if n := e.Stats().NotAcked; n != 6 {
			t.Errorf("NotAcked %d", n)
		}
		// One is enough for a caller that asks for one, and so is none.
		mustUnlock(t, mustLock(t, e.Mutex("x"), Acked(1)))
		mustUnlock(t, mustLock(t, e.Mutex("x")))
		f.links[0].Release()
		eventually(t, "the replica keeps up again", func() bool {
			h, err := e.Mutex("x").Lock(ctxT(t), Acked(AllReplicas))
			if err == nil {
				mustUnlock(t, h)
			}
			return err == nil
		})
		clean(t, f.primary, e)
	})
}

// It is known at once, so nobody waits out an hour for it.
func TestNoReplicaAttachedIsAnErrorAtOnce(t *testing.T) {
	t.Parallel()
	e := open(t, server(t).URL(), ackTimeout(time.Hour))
	for _, want := range []Replicas{AllReplicas, MajorityOfReplicas} {
		_, err := e.Mutex("x").Lock(ctxT(t), Acked(want))
		notAcked(t, err, 0, 1)
	}
	_, err := e.Mutex("x").Lock(ctxT(t), Acked(3))
	notAcked(t, err, 0, 3)
	mustUnlock(t, mustLock(t, e.Mutex("x")))
}

// A replica that comes later counts from then on.
func TestReplicaThatIsAttachedLaterIsWaitedFor(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		f := newFleet(t, 1)
		e := f.open(ackTimeout(200 * time.Millisecond))
		h := mustLock(t, e.Mutex("x"), Acked(AllReplicas))
		if h.Acked() != 1 {
			t.Fatalf("%d acknowledged", h.Acked())
		}
		mustUnlock(t, h)
		late := redistest.Start(t)
		l := f.Through(late, f.primary)
		// It is attached, but is sent nothing before it has reported, within a second.
		eventually(t, "it acknowledges", func() bool {
			h, err := e.Mutex("x").Lock(ctxT(t), Acked(AllReplicas))
			if err != nil {
				notAcked(t, err, 1, 2)
				return false
			}
			if h.Acked() != 2 {
				t.Fatalf("%d acknowledged after another was attached", h.Acked())
			}
			mustUnlock(t, h)
			return true
		})
		l.Hold()
		_, err := e.Mutex("x").Lock(ctxT(t), Acked(AllReplicas))
		notAcked(t, err, 1, 2)
	})
}

// The default of the engine holds for every acquisition that does not say otherwise.
func TestConfigReplicasIsTheDefault(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	e := open(t, f.primary.URL()+"?replicas=all&ack_timeout=20s")
	h := mustLock(t, e.Mutex("x"))
	if h.Acked() != 1 {
		t.Errorf("%d acknowledged", h.Acked())
	}
	inner, err := e.Mutex("x").Lock(h.Context(ctxT(t)))
	if err != nil || inner.Acked() != 1 {
		t.Errorf("a re-entry: %v", err)
	}
	mustUnlock(t, inner)
	mustUnlock(t, h)
	waits := f.primary.CommandStats()["wait"]
	h = mustLock(t, e.Mutex("x"), Acked(0))
	if n := f.primary.CommandStats()["wait"] - waits; n != 0 || h.Acked() != 0 {
		t.Errorf("Acked(0) sent %d WAITs, %d acknowledged", n, h.Acked())
	}
	mustUnlock(t, h)
}

// While the replicas are silent the primary raises the lease at every renewal, and the
// hold still ends: a replica that is promoted lets it run out.
func TestRenewalsCountWithAcknowledgementsOnly(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		f := newFleet(t, 2)
		e := f.open(leaseOf(1200*time.Millisecond), ackTimeout(100*time.Millisecond))
		durable := mustLock(t, e.Mutex("durable"), Acked(AllReplicas))
		one := mustLock(t, e.Mutex("one"), Acked(1))
		plain := mustLock(t, e.Mutex("plain"))
		first := durable.ValidUntil()
		eventually(t, "it is renewed", func() bool { return durable.ValidUntil().After(first.Add(time.Second)) })
		f.links[1].Hold()
		// A renewal may be out, acknowledged already.
		waits := f.primary.CommandStats()["wait"]
		eventually(t, "renewals go on", func() bool { return f.primary.CommandStats()["wait"] > waits+1 })
		last := durable.ValidUntil()
		<-durable.Done()
		var lost *LostError
		if err := durable.Err(); !errors.As(err, &lost) || lost.Reason != NotRenewed {
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
		eventually(t, "the lost one is released", func() bool { return f.primary.Do("EXISTS", "durable") == int64(0) })
		mustUnlock(t, one)
		mustUnlock(t, plain)
	})
}

// What was renewed in vain for a while is kept if the replicas come back in time.
func TestHoldOutlivesASilenceOfTheReplicas(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		f := newFleet(t, 1)
		e := f.open(leaseOf(3*time.Second), ackTimeout(200*time.Millisecond))
		var holds []*Hold
		for i := range 200 {
			holds = append(holds, mustLock(t, e.Mutex(fmt.Sprint("x", i)), Acked(AllReplicas)))
		}
		f.links[0].Hold()
		waits := f.primary.CommandStats()["wait"]
		eventually(t, "renewals fail", func() bool { return f.primary.CommandStats()["wait"] > waits+3 })
		f.links[0].Release()
		n := e.Stats().Renewed
		eventually(t, "all are renewed twice", func() bool { return e.Stats().Renewed >= n+uint64(2*len(holds)) })
		for _, h := range holds {
			if err := h.Err(); err != nil {
				t.Fatalf("%s: %v", h.Name(), err)
			}
			mustUnlock(t, h)
		}
		clean(t, f.primary, e)
	})
}

// A lock that is gone is told of, acknowledged or not.
func TestRemovalIsNoticedWhileTheReplicasAreSilent(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		f := newFleet(t, 1)
		e := f.open(leaseOf(20*time.Second), ackTimeout(200*time.Millisecond))
		h := mustLock(t, e.Mutex("x"), Acked(1))
		f.links[0].Hold()
		f.primary.Do("DEL", "x")
		h.h.LookNow()
		<-h.Done()
		var lost *LostError
		if err := h.Err(); !errors.As(err, &lost) || lost.Reason != GoneOnServer {
			t.Errorf("%v", err)
		}
	})
}

func TestExtendCountsWithAcknowledgementsOnly(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		f := newFleet(t, 1)
		e := f.open(ackTimeout(500 * time.Millisecond))
		h := mustLock(t, e.Mutex("x"), Lease(10*time.Second), Acked(AllReplicas))
		if err := h.Extend(ctxT(t), 20*time.Second); err != nil || h.Acked() != 1 {
			t.Fatal(err)
		}
		before := h.ValidUntil()
		if left := time.Until(before); left < 15*time.Second {
			t.Errorf("%v left after Extend", left)
		}
		f.links[0].Hold()
		err := h.Extend(ctxT(t), 40*time.Second)
		notAcked(t, err, 0, 1)
		if after := h.ValidUntil(); after.Sub(before).Abs() > time.Second || h.Err() != nil {
			t.Errorf("valid until %v, was %v; %v", after, before, h.Err())
		}
		mustUnlock(t, h)
		clean(t, f.primary, e)
	})
}

func TestReentryCountsWithAcknowledgementsOnly(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		f := newFleet(t, 1)
		e := f.open(ackTimeout(500 * time.Millisecond))
		m := e.Mutex("x")
		outer := mustLock(t, m, Acked(1))
		f.links[0].Hold()
		_, err := m.Lock(outer.Context(ctxT(t)))
		notAcked(t, err, 0, 1)
		inner, err := m.Lock(outer.Context(ctxT(t)), Acked(0))
		if err != nil {
			t.Fatalf("with Acked(0): %v", err)
		}
		if n := fields(t, f.primary, "x")[outer.Owner()]; n != "2" {
			t.Errorf("the count is %s", n)
		}
		mustUnlock(t, inner)
		if err := outer.Err(); err != nil {
			t.Error(err)
		}
		mustUnlock(t, outer)
		clean(t, f.primary, e)
	})
}

// WAIT blocks its connection for an hour here. Nobody else is on it.
func TestPlainOperationsPassThoseThatWaitForReplicas(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		f := newFleet(t, 1)
		e := f.open(ackTimeout(time.Hour), leaseOf(3*time.Second))
		mustUnlock(t, mustLock(t, e.Mutex("x"), Acked(1)))
		f.links[0].Hold()
		var stuck []*Future[*Hold]
		for i := range 20 {
			stuck = append(stuck, e.Mutex(fmt.Sprint("stuck", i)).LockAsync(ctxT(t), Acked(1), Lease(time.Minute)))
		}
		eventually(t, "one of them is on the server", func() bool { return f.primary.Do("DBSIZE") != int64(0) })
		held := mustLock(t, e.Mutex("held"))
		for i := range 1000 {
			mustUnlock(t, mustLock(t, e.Mutex(fmt.Sprint("plain", i%10))))
		}
		renewed := e.Stats().Renewed
		eventually(t, "a plain hold is renewed", func() bool { return e.Stats().Renewed > renewed+1 })
		for _, s := range stuck {
			if _, err := s.Result(); !errors.Is(err, ErrPending) {
				t.Fatalf("acknowledged by nobody, and: %v", err)
			}
		}
		f.links[0].Release()
		holds, err := AwaitAll(ctxT(t), stuck...)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range append(holds, held) {
			mustUnlock(t, h)
		}
		clean(t, f.primary, e)
	})
}

// The acquisition is over at once; what the server granted is given back when the
// server has told.
func TestCancelledWhileReplicasAreWaitedFor(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		f := newFleet(t, 1)
		e := f.open(ackTimeout(300 * time.Millisecond))
		mustUnlock(t, mustLock(t, e.Mutex("x"), Acked(1)))
		f.links[0].Hold()
		ctx, cancel := context.WithCancelCause(ctxT(t))
		future := e.Mutex("x").LockAsync(ctx, Acked(1))
		eventually(t, "the primary has granted it", func() bool { return f.primary.Do("EXISTS", "x") == int64(1) })
		why := errors.New("changed my mind")
		cancel(why)
		if _, err := future.Await(ctxT(t)); !errors.Is(err, why) || !errors.Is(err, ErrNotAcquired) {
			t.Fatal(err)
		}
		clean(t, f.primary, e)
	})
}

// The connection dies with the WAIT on it: the lock is there, and nobody knows who
// has it.
func TestConnectionLostWhileReplicasAreWaitedFor(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	proxy := faultproxy.New(t, "tcp", f.primary.Addr())
	e := open(t, "redis://"+proxy.Addr())
	mustUnlock(t, mustLock(t, e.Mutex("x"), Acked(1)))
	f.links[0].Hold() // so that the answers before it arrive
	trap := proxy.Watch(faultproxy.Is("WAIT"))
	future := e.Mutex("x").LockAsync(ctxT(t), Acked(1))
	trap.Wait(1)
	eventually(t, "the primary has granted it", func() bool { return f.primary.Do("EXISTS", "x") == int64(1) })
	proxy.Cut(faultproxy.Carried("WAIT"))
	f.links[0].Release()
	h, err := future.Await(ctxT(t))
	switch {
	case err == nil: // its answer was lost, too: it was burned, and tried again
		mustUnlock(t, h)
	case !errors.Is(err, ErrNotAcked) || !errors.Is(err, ErrNotAcquired):
		t.Fatal(err)
	}
	clean(t, f.primary, e)
}

// Two services contend for the same locks, with holders on all replicas.
func TestDurableLocksAreHandedOnLikeOthers(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	all := func(c *Config) { c.Replicas = AllReplicas }
	a, b := f.open(all), f.open(all)
	at := &site{servers: func() []*redistest.Server { return []*redistest.Server{f.primary} }}
	deployedContention(t, at, a, b)
	deployedWaiting(t, at, a, b)
	waits := f.primary.CommandStats()["wait"]
	if waits == 0 {
		t.Error("no WAIT at all")
	}
	clean(t, f.primary, a, b)
}

// Group commit: many acquisitions share a WAIT.
func TestManyDurableAcquisitionsShareWaits(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	e := f.open()
	mustUnlock(t, mustLock(t, e.Mutex("x"), Acked(1)))
	before := f.primary.CommandStats()["wait"]
	const many = 2000
	var futures []*Future[*Hold]
	for i := range many {
		futures = append(futures, e.Mutex(fmt.Sprint("x", i)).LockAsync(ctxT(t), Acked(AllReplicas)))
	}
	holds, err := AwaitAll(ctxT(t), futures...)
	if err != nil {
		t.Fatal(err)
	}
	if n := f.primary.CommandStats()["wait"] - before; n > many/10 {
		t.Errorf("%d WAITs for %d acquisitions", n, many)
	}
	for _, h := range holds {
		mustUnlock(t, h)
	}
	clean(t, f.primary, e)
}

func TestBadReplicasAreRefusedWithTheirName(t *testing.T) {
	t.Parallel()
	e := open(t, server(t).URL())
	for _, r := range []Replicas{-3, maxReplicas + 1} {
		if _, err := e.Mutex("x").Lock(ctxT(t), Acked(r)); !errors.Is(err, ErrInvalid) || !hasText(err, "Acked") {
			t.Errorf("Acked(%d): %v", r, err)
		}
		if _, err := New(ctxT(t), Config{Replicas: r}); !errors.Is(err, ErrInvalid) || !hasText(err, "Config.Replicas") {
			t.Errorf("Config.Replicas %d: %v", r, err)
		}
	}
	if _, err := New(ctxT(t), Config{AckTimeout: time.Microsecond}); !errors.Is(err, ErrInvalid) || !hasText(err, "AckTimeout") {
		t.Errorf("%v", err)
	}
	for _, s := range []string{"some", "-1", "1.5", "", "99999999999999999999"} {
		if _, err := ParseURL("redis://h?replicas=" + s); !errors.Is(err, ErrInvalid) || !hasText(err, "replicas") {
			t.Errorf("replicas=%s: %v", s, err)
		}
	}
	for s, want := range map[string]Replicas{"all": AllReplicas, "majority": MajorityOfReplicas, "0": 0, "2": 2} {
		c, err := ParseURL("redis://h?ack_timeout=250ms&replicas=" + s)
		if err != nil || c.Replicas != want || c.AckTimeout != 250*time.Millisecond {
			t.Errorf("%s: %+v, %v", s, c, err)
		}
	}
	if c := (Config{Lease: 3 * time.Second}).withDefaults(); c.AckTimeout != 500*time.Millisecond {
		t.Errorf("AckTimeout %v at a lease of 3s", c.AckTimeout)
	}
}

// The password does not appear, the name does, and what to do.
func TestAckErrorSaysWhatToDo(t *testing.T) {
	t.Parallel()
	e := open(t, server(t).URL())
	_, err := e.Mutex("orders").Lock(ctxT(t), Acked(2))
	for _, text := range []string{"orders", "0 of 2 replicas", "1s", "attached"} {
		if !hasText(err, text) {
			t.Errorf("%q lacks %q", err, text)
		}
	}
	if strings.Contains(fmt.Sprint(err), "\n") {
		t.Error("more than a line")
	}
}
