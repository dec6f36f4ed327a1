package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/pace"
)

// The holder unlocks at each point between a failed try and the confirmation of the
// subscription. A waiter that misses it would sleep for the lease of 30 s.
func TestReleaseAtAnyPointOfTheSubscriptionWakesTheWaiter(t *testing.T) {
	t.Parallel()
	s := server(t)
	holder := open(t, s.URL()).Mutex("x")
	points := map[string]func(t *testing.T, p *faultproxy.Proxy, e *Engine, h *Hold){
		"before the try is sent": func(t *testing.T, p *faultproxy.Proxy, e *Engine, h *Hold) {
			mustUnlock(t, h)
		},
		"after the try was refused, before SUBSCRIBE reaches the server": func(t *testing.T, p *faultproxy.Proxy, e *Engine, h *Hold) {
			p.Pause(faultproxy.Carried("SUBSCRIBE"))
			eventually(t, "the try was refused", func() bool { return e.Stats().Channels == 1 })
			mustUnlock(t, h)
			p.Resume()
		},
		"after SUBSCRIBE, before its confirmation arrives": func(t *testing.T, p *faultproxy.Proxy, e *Engine, h *Hold) {
			p.Delay(faultproxy.Carried("SUBSCRIBE"), 0, 100*time.Millisecond)
			eventually(t, "the server has the subscription", func() bool {
				list, _ := s.Do("PUBSUB", "CHANNELS").([]any)
				return len(list) == 1
			})
			mustUnlock(t, h)
		},
		"while the second try is under way": func(t *testing.T, p *faultproxy.Proxy, e *Engine, h *Hold) {
			p.Delay(faultproxy.Carried("EVALSHA"), 0, 100*time.Millisecond)
			p.Watch(faultproxy.Is("EVALSHA"))
			eventually(t, "two tries", func() bool { return p.Stats().Forwarded["EVALSHA"] >= 2 })
			mustUnlock(t, h)
		},
		"while it sleeps": func(t *testing.T, p *faultproxy.Proxy, e *Engine, h *Hold) {
			eventually(t, "two tries answered", func() bool {
				return p.Stats().Forwarded["EVALSHA"] >= 2 && e.Stats().InFlight == 0
			})
			mustUnlock(t, h)
		},
	}
	for name, act := range points {
		t.Run(name, func(t *testing.T) {
			p := faultproxy.New(t, "tcp", s.Addr())
			e := open(t, "redis://"+p.Addr())
			h := mustLock(t, holder)
			f := e.Mutex("x").LockAsync(ctxT(t))
			act(t, p, e, h)
			start := pace.Now()
			got, err := f.Await(ctxT(t))
			if err != nil {
				t.Fatal(err)
			}
			if d := start.Elapsed(); d > 5*time.Second {
				t.Errorf("woken after %v", d)
			}
			mustUnlock(t, got)
		})
	}
}

// The connection of the messages is cut under many waiters: every channel comes
// back and every head tries again, for messages were lost meanwhile.
func TestCutSubscriptionsComeBackAndEveryHeadTries(t *testing.T) {
	t.Parallel()
	s, p, e := behind(t)
	holder := open(t, s.URL())
	const n = 300
	holds := make([]*Hold, n)
	futures := make([]*Future[*Hold], n)
	for i := range n {
		holds[i] = mustLock(t, holder.Mutex(fmt.Sprint("x", i)))
		futures[i] = e.Mutex(fmt.Sprint("x", i)).LockAsync(ctxT(t))
	}
	subscribed := func() bool {
		list, _ := s.Do("PUBSUB", "CHANNELS").([]any)
		return len(list) == n
	}
	eventually(t, "all subscribe", subscribed)
	p.Down()
	// Released while nobody hears it.
	for i := range n / 2 {
		mustUnlock(t, holds[i])
	}
	p.Up()
	for i := range n / 2 {
		h, err := futures[i].Await(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, h)
	}
	for i := n / 2; i < n; i++ {
		mustUnlock(t, holds[i])
		h, err := futures[i].Await(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, h)
	}
	clean(t, s, e, holder)
}

// The pub/sub connection alone dies again and again under contention: only time
// may be lost.
func TestContentionSurvivesAnUnreliablePubSubConnection(t *testing.T) {
	t.Parallel()
	s, p, e := behind(t)
	other := open(t, s.URL())
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
		m := []*Engine{e, other}[i%2].Mutex("x")
		wg.Go(func() {
			for range 30 {
				h, err := m.Lock(ctxT(t))
				if err != nil {
					t.Error(err)
					return
				}
				pairs.Add(1)
				if err := h.Unlock(ctxT(t)); err != nil {
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
	s := server(t)
	holder := open(t, s.URL())
	e := open(t, s.URL())
	const n = 1000
	h := mustLock(t, holder.Mutex("hot"))
	var served atomic.Int64
	var wg sync.WaitGroup
	for i := range n {
		name := "hot"
		if i%2 == 1 {
			name = fmt.Sprint("own", i)
			mustLock(t, holder.Mutex(name))
		}
		f := e.Mutex(name).LockAsync(context.Background())
		wg.Go(func() {
			got, err := f.Await(within(t, limit))
			if err != nil {
				return // counted below
			}
			served.Add(1)
			if err := got.Unlock(ctxT(t)); err != nil && !errors.Is(err, ErrLost) {
				t.Error(err)
			}
		})
	}
	eventually(t, "all wait", func() bool { return e.Stats().Waiting == n })
	s.Kill()
	s.Restart() // empty: every hold is gone
	wg.Wait()
	if served.Load() != n {
		report(t, e)
		t.Errorf("%d served, want %d", served.Load(), n)
	}
	// The watchdog notices at the next renewal, Unlock at once.
	if err := h.Unlock(ctxT(t)); !errors.Is(err, ErrLost) {
		t.Errorf("Unlock of a hold that the server forgot: %v", err)
	}
}

func TestLockWithoutAServerWaitsAndTryLockDoesNot(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL(), func(c *Config) { c.CommandTimeout = 300 * time.Millisecond })
	s.Kill()
	f := e.Mutex("x").LockAsync(ctxT(t))
	for what, err := range map[string]error{
		"TryLock": second(e.Mutex("y").TryLock(ctxT(t))),
		"State":   second(e.Mutex("x").State(ctxT(t))),
		"Ping":    e.Ping(ctxT(t)),
	} {
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", what, err)
		}
	}
	if _, err := e.Mutex("z").Lock(ctxT(t), Wait(200*time.Millisecond)); !errors.Is(err, ErrNotAcquired) || !errors.Is(err, ErrUnavailable) {
		t.Errorf("Lock with Wait: %v", err)
	}
	s.Restart()
	h, err := f.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, h)
}

func second[T any](_ T, err error) error { return err }
