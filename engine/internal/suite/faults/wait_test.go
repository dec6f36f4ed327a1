package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// The holder unlocks at each point between a failed try and the confirmation of the
// subscription. A waiter that misses it would sleep for the lease of 30 s.
func TestReleaseAtAnyPointOfTheSubscriptionWakesTheWaiter(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	holder := testkit.Open(t, s.URL()).Mutex("x")
	points := map[string]func(t *testing.T, p *faultproxy.Proxy, e *engine.Engine, h *engine.Hold){
		"before the try is sent": func(t *testing.T, p *faultproxy.Proxy, e *engine.Engine, h *engine.Hold) {
			testkit.MustUnlock(t, h)
		},
		"after the try was refused, before SUBSCRIBE reaches the server": func(t *testing.T, p *faultproxy.Proxy, e *engine.Engine, h *engine.Hold) {
			p.Pause(faultproxy.Carried("SUBSCRIBE"))
			testkit.Eventually(t, "the try was refused", func() bool { return e.Stats().Channels == 1 })
			testkit.MustUnlock(t, h)
			p.Resume()
		},
		"after SUBSCRIBE, before its confirmation arrives": func(t *testing.T, p *faultproxy.Proxy, e *engine.Engine, h *engine.Hold) {
			p.Delay(faultproxy.Carried("SUBSCRIBE"), 0, 100*time.Millisecond)
			testkit.Eventually(t, "the server has the subscription", func() bool {
				list, _ := s.Do("PUBSUB", "CHANNELS").([]any)
				return len(list) == 1
			})
			testkit.MustUnlock(t, h)
		},
		"while the second try is under way": func(t *testing.T, p *faultproxy.Proxy, e *engine.Engine, h *engine.Hold) {
			p.Delay(faultproxy.Carried("EVALSHA"), 0, 100*time.Millisecond)
			p.Watch(faultproxy.Is("EVALSHA"))
			testkit.Eventually(t, "two tries", func() bool { return p.Stats().Forwarded["EVALSHA"] >= 2 })
			testkit.MustUnlock(t, h)
		},
		"while it sleeps": func(t *testing.T, p *faultproxy.Proxy, e *engine.Engine, h *engine.Hold) {
			testkit.Eventually(t, "two tries answered", func() bool {
				return p.Stats().Forwarded["EVALSHA"] >= 2 && e.Stats().InFlight == 0
			})
			testkit.MustUnlock(t, h)
		},
	}
	for name, act := range points {
		t.Run(name, func(t *testing.T) {
			p := faultproxy.New(t, "tcp", s.Addr())
			e := testkit.Open(t, "redis://"+p.Addr())
			h := testkit.MustLock(t, holder)
			f := e.Mutex("x").LockAsync(testkit.Ctx(t))
			act(t, p, e, h)
			start := cputime.Now()
			got, err := f.Await(testkit.Ctx(t))
			if err != nil {
				t.Fatal(err)
			}
			if d := start.Elapsed(); d > 5*time.Second {
				t.Errorf("woken after %v", d)
			}
			testkit.MustUnlock(t, got)
		})
	}
}

// The connection of the messages is cut under many waiters: every channel comes
// back and every head tries again, for messages were lost meanwhile.
func TestCutSubscriptionsComeBackAndEveryHeadTries(t *testing.T) {
	t.Parallel()
	s, p, e := testkit.Behind(t)
	holder := testkit.Open(t, s.URL())
	const n = 300
	holds := make([]*engine.Hold, n)
	futures := make([]*engine.Future[*engine.Hold], n)
	for i := range n {
		holds[i] = testkit.MustLock(t, holder.Mutex(fmt.Sprint("x", i)))
		futures[i] = e.Mutex(fmt.Sprint("x", i)).LockAsync(testkit.Ctx(t))
	}
	subscribed := func() bool {
		list, _ := s.Do("PUBSUB", "CHANNELS").([]any)
		return len(list) == n
	}
	testkit.Eventually(t, "all subscribe", subscribed)
	p.Down()
	// Released while nobody hears it.
	for i := range n / 2 {
		testkit.MustUnlock(t, holds[i])
	}
	p.Up()
	for i := range n / 2 {
		h, err := futures[i].Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		testkit.MustUnlock(t, h)
	}
	for i := n / 2; i < n; i++ {
		testkit.MustUnlock(t, holds[i])
		h, err := futures[i].Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		testkit.MustUnlock(t, h)
	}
	testkit.Clean(t, s, e, holder)
}

// The pub/sub connection alone dies again and again under contention: only time
// may be lost.
func TestContentionSurvivesAnUnreliablePubSubConnection(t *testing.T) {
	t.Parallel()
	s, p, e := testkit.Behind(t)
	other := testkit.Open(t, s.URL())
	stop := make(chan struct{})
	var cutter sync.WaitGroup
	cutter.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.Cut(faultproxy.Carried("SUBSCRIBE"))
			case <-stop:
				return
			}
		}
	})
	var pairs atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		m := []*engine.Engine{e, other}[i%2].Mutex("x")
		wg.Go(func() {
			for range 30 {
				h, err := m.Lock(testkit.Ctx(t))
				if err != nil {
					t.Error(err)
					return
				}
				pairs.Add(1)
				if err := h.Unlock(testkit.Ctx(t)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	cutter.Wait()
	if pairs.Load() != 240 {
		t.Errorf("%d pairs", pairs.Load())
	}
}

func TestServerKilledAndRestartedUnderManyWaitersServesThemAll(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	holder := testkit.Open(t, s.URL())
	e := testkit.Open(t, s.URL())
	const n = 1000
	h := testkit.MustLock(t, holder.Mutex("hot"))
	var served atomic.Int64
	var wg sync.WaitGroup
	for i := range n {
		name := "hot"
		if i%2 == 1 {
			name = fmt.Sprint("own", i)
			testkit.MustLock(t, holder.Mutex(name))
		}
		f := e.Mutex(name).LockAsync(context.Background())
		wg.Go(func() {
			got, err := f.Await(testkit.Within(t, testkit.Limit))
			if err != nil {
				return // counted below
			}
			served.Add(1)
			if err := got.Unlock(testkit.Ctx(t)); err != nil && !errors.Is(err, engine.ErrLost) {
				t.Error(err)
			}
		})
	}
	testkit.Eventually(t, "all wait", func() bool { return e.Stats().Waiting == n })
	s.Kill()
	s.Restart() // empty: every hold is gone
	wg.Wait()
	if served.Load() != n {
		testkit.Report(t, e)
		t.Errorf("%d served, want %d", served.Load(), n)
	}
	// The watchdog notices at the next renewal, Unlock at once.
	if err := h.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
		t.Errorf("Unlock of a hold that the server forgot: %v", err)
	}
}

func TestLockWithoutAServerWaitsAndTryLockDoesNot(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL(), func(c *engine.Config) { c.CommandTimeout = 300 * time.Millisecond })
	s.Kill()
	f := e.Mutex("x").LockAsync(testkit.Ctx(t))
	for what, err := range map[string]error{
		"TryLock": testkit.ErrOf(e.Mutex("y").TryLock(testkit.Ctx(t))),
		"State":   testkit.ErrOf(e.Mutex("x").State(testkit.Ctx(t))),
		"Ping":    e.Ping(testkit.Ctx(t)),
	} {
		if !errors.Is(err, engine.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", what, err)
		}
	}
	if _, err := e.Mutex("z").Lock(testkit.Ctx(t), engine.Wait(200*time.Millisecond)); !errors.Is(err, engine.ErrNotAcquired) || !errors.Is(err, engine.ErrUnavailable) {
		t.Errorf("Lock with Wait: %v", err)
	}
	s.Restart()
	h, err := f.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	testkit.MustUnlock(t, h)
}
