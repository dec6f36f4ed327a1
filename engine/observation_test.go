package engine_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// A future of an engine that is closed fails as any other.
func TestObserver_FutureOfAClosedEngine_HasAnEnd(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 3)
	l := new(ledger)
	v := s.Open(func(c *engine.Config) { c.Observer = l })
	for _, e := range v {
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, err := range map[string]error{
		"Mutex":      testkit.ErrOf(v[0].Mutex("x").LockAsync(testkit.Ctx(t)).Await(testkit.Ctx(t))),
		"MultiLock":  testkit.ErrOf(v[0].Many("a", "b").LockAsync(testkit.Ctx(t)).Await(testkit.Ctx(t))),
		"QuorumLock": testkit.ErrOf(v.Lock("q").LockAsync(testkit.Ctx(t)).Await(testkit.Ctx(t))),
		"Semaphore":  testkit.ErrOf(v[0].Semaphore("s").AcquireAsync(testkit.Ctx(t), 1).Await(testkit.Ctx(t))),
	} {
		if !errors.Is(err, engine.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	l.balanced(t)
}

// brokenContext panics when it is asked why it has ended.
type brokenContext struct {
	context.Context
	over chan struct{}
}

func (c brokenContext) Done() <-chan struct{} { return c.over }

func (c brokenContext) Err() error {
	select {
	case <-c.over:
		panic("a broken context")
	default:
		return nil
	}
}

// deafContext panics when somebody listens to it.
type deafContext struct{ context.Context }

func (deafContext) Done() <-chan struct{} { panic("a broken context") }

func TestObserver_ContextPanics_AcquisitionHasAnEnd(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 3)
	l := new(ledger)
	v := s.Open(func(c *engine.Config) { c.Observer = l })
	e := v[0]
	for _, one := range v {
		testkit.MustLock(t, one.Mutex("x"))
	}
	over := make(chan struct{})
	close(over)
	for name, acquire := range map[string]func(context.Context){
		"Mutex":             func(ctx context.Context) { _, _ = e.Mutex("x").Lock(ctx) },
		"MultiLock":         func(ctx context.Context) { _, _ = e.Many("x", "y").Lock(ctx) },
		"QuorumLock":        func(ctx context.Context) { _, _ = v.Lock("x").Lock(ctx) },
		"Semaphore":         func(ctx context.Context) { _, _ = e.Semaphore("s").Acquire(ctx, 1) },
		"Mutex, async":      func(ctx context.Context) { e.Mutex("x").LockAsync(ctx) },
		"MultiLock, async":  func(ctx context.Context) { e.Many("x", "y").LockAsync(ctx) },
		"QuorumLock, async": func(ctx context.Context) { v.Lock("x").LockAsync(ctx) },
		"Semaphore, async":  func(ctx context.Context) { e.Semaphore("s").AcquireAsync(ctx, 1) },
	} {
		later := make(chan struct{})
		for at, c := range map[string]context.Context{
			"at once":         brokenContext{context.Background(), over},
			"while it waits":  brokenContext{context.Background(), later},
			"when it listens": deafContext{context.Background()},
		} {
			if at == "while it waits" {
				if strings.HasSuffix(name, "async") {
					continue
				}
				time.AfterFunc(20*time.Millisecond, func() { close(later) }) // the sooner, the earlier it is given up
			}
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s did not panic %s", name, at)
					}
				}()
				acquire(c)
			}()
		}
	}
	testkit.Eventually(t, "each start has an end", func() bool {
		starts, events := l.all()
		ends := 0
		for _, ev := range events {
			if ev.acquire != nil {
				ends++
			}
		}
		return starts == ends
	})
}

// Of two goroutines that unlock, the one that has ended the hold reports that, with its own result: nobody reports
// the ErrNotHeld of the other.
func TestObserver_TwoUnlocks_OneReportsTheEnd(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 3)
	l := new(ledger)
	v := s.Open(func(c *engine.Config) { c.Observer = l })
	e := v[0]
	testkit.MustSetPermits(t, e.Semaphore("s"), 4)
	const rounds = 100
	for i := range rounds {
		ctx := testkit.Ctx(t)
		one, many, quorum := testkit.MustLock(t, e.Mutex("x")), testkit.MustLockMany(t, e, []string{"a", "b"}), testkit.MustRedLock(t, v.Lock("q"))
		permits := testkit.MustAcquire(t, e.Semaphore("s"), 1)
		var all sync.WaitGroup
		for range 2 {
			for _, h := range []*engine.Hold{one, many, quorum} {
				all.Go(func() {
					if i%2 == 0 {
						_ = h.Unlock(ctx)
					} else {
						_, _ = h.UnlockAsync().Await(ctx)
					}
				})
			}
			all.Go(func() { _ = permits.Release(ctx) })
		}
		all.Wait()
	}
	l.balanced(t)
	released := make(map[string]int)
	defer func() {
		if t.Failed() {
			t.Log(released, e.Stats())
		}
	}()
	testkit.Eventually(t, "one release of each hold", func() bool {
		clear(released)
		for _, ev := range l.of(false) {
			if ev.release != nil {
				released[ev.Kind]++
			}
		}
		return len(released) == 4 && released["mutex"]+released["multilock"]+released["redlock"]+released["semaphore"] == 4*rounds
	})
	for _, ev := range l.of(false) {
		if ev.release != nil && ev.release.Err != nil {
			t.Error(ev)
		}
	}
}

// Everything at once, with an Observer that calls the engine from each method.
func TestObserver_Storm_IsBalanced(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 3)
	l := new(ledger)
	var engines atomic.Pointer[testkit.Voters]
	call := func(ctx context.Context) {
		v := engines.Load()
		if v == nil {
			return
		}
		e := (*v)[0]
		e.Stats()
		_ = e.Ready()
		if ctx != nil && rand.IntN(10) == 0 && ctx.Value(nestedKey{}) == nil {
			nested, cancel := context.WithTimeout(context.WithValue(context.Background(), nestedKey{}, 1), 20*time.Millisecond)
			defer cancel()
			if h, err := e.Mutex("nested").Lock(nested); err == nil {
				h.UnlockAsync()
			}
		}
	}
	own := engine.ObserverFuncs{
		OnAcquireStart: func(ctx context.Context, _ engine.Acquisition) context.Context { call(ctx); return ctx },
		OnAcquireEnd:   func(ctx context.Context, _ engine.Acquisition, _ engine.AcquireEnd) { call(ctx) },
		OnHoldEnd:      func(ctx context.Context, _ engine.Acquisition, _ engine.HoldEnd) { call(ctx) },
		OnReleaseEnd:   func(ctx context.Context, _ engine.Acquisition, _ engine.ReleaseEnd) { call(ctx) },
		OnRenewEnd:     func(engine.RenewEnd) { call(nil) },
		OnConnChange:   func(engine.ConnChange) { call(nil) },
	}
	v := s.Open(func(c *engine.Config) { c.Observer = engine.Observers(l, own); c.CloseTimeout = 10 * time.Second })
	engines.Store(&v)
	e := v[0]
	testkit.MustSetPermits(t, e.Semaphore("s"), 3)
	if err := e.PermitSemaphore("p").SetPermits(testkit.Ctx(t), 3); err != nil {
		t.Fatal(err)
	}
	rw := e.RWMutex("rw")
	locks := []engine.Lock{e.Mutex("x"), e.FencedMutex("f"), e.FairMutex("fair"), rw.Reader(), rw.Reader(), rw.Writer(),
		e.Many("x", "f", "y"), v.Lock("q"), e.PermitSemaphore("p").Permits(2), engine.Multi(v[0].Mutex("m"), v[1].Mutex("m"))}
	use := func(h *engine.Hold) {
		switch rand.IntN(6) {
		case 0:
			h.UnlockAsync()
			_ = h.Unlock(context.Background())
		case 1:
			for range 100 {
				h.Context(noContext)
			}
			h.UnlockAsync()
		case 2:
			ctx, cancel := context.WithTimeout(h.Context(noContext), 5*time.Millisecond)
			if inner, err := e.Mutex("x").Lock(ctx); err == nil {
				inner.UnlockAsync()
			}
			cancel()
			_ = h.Unlock(context.Background())
		case 3:
			if r, err := rw.Downgrade(context.Background(), h); err == nil {
				r.UnlockAsync()
			}
			h.UnlockAsync()
		case 4:
			_, _ = e.Mutex("x").ForceUnlock(context.Background())
			_ = h.Unlock(context.Background())
		default:
			_ = h.Unlock(noContext)
		}
	}
	end := time.Now().Add(3 * time.Second)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for time.Now().Before(end.Add(time.Second)) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(20))*time.Millisecond)
				var opts []engine.Option
				if rand.IntN(3) == 0 {
					opts = append(opts, engine.Lease(time.Duration(100+rand.IntN(50))*time.Millisecond))
				}
				k := locks[rand.IntN(len(locks))]
				switch rand.IntN(5) {
				case 0:
					if h, err := k.Lock(ctx, opts...); err == nil {
						use(h)
					}
				case 1:
					if h, err := k.TryLock(ctx, opts...); err == nil {
						use(h)
					}
				case 2:
					f := k.LockAsync(ctx, opts...)
					if rand.IntN(2) == 0 {
						f.Abandon()
					}
					if h, err := f.Await(context.Background()); err == nil {
						go f.Abandon()
						use(h)
					}
				case 3:
					_ = k.Do(ctx, func(ctx context.Context, h *engine.Hold) error {
						if numberIn(ctx) == 0 {
							t.Error("another context")
						}
						return nil
					}, opts...)
				default:
					if rand.IntN(2) == 0 {
						if p, err := e.Semaphore("s").Acquire(ctx, 1); err == nil {
							p.ReleaseAsync()
							_ = p.Release(context.Background())
						}
						break
					}
					f := e.Semaphore("s").AcquireAsync(ctx, 1)
					if p, err := f.Await(context.Background()); err == nil {
						go f.Abandon()
						p.ReleaseAsync()
					}
				}
				cancel()
			}
		})
	}
	all.Go(func() {
		testkit.Pause(nil, time.Until(end))
		for _, one := range v {
			_ = one.Close()
		}
	})
	all.Wait()
	l.balanced(t)
}

type nestedKey struct{}
