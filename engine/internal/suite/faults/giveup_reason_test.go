package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// An acquirer acquires a synchronizer of some kind and gives it back, with contexts of its own.
type acquirer func(acquire context.Context, try bool, opts ...engine.Option) (giveBack func(context.Context), err error)

// everyKind has what can be acquired.
func everyKind(t testing.TB, e *engine.Engine, others ...*engine.Engine) map[string]acquirer {
	t.Helper()
	rw, permits, count := e.RWMutex("rw"), e.PermitSemaphore("permits"), e.Semaphore("count")
	if err := permits.SetPermits(testkit.Ctx(t), 2); err != nil {
		t.Fatal(err)
	}
	if _, err := count.TrySetPermits(testkit.Ctx(t), 2); err != nil {
		t.Fatal(err)
	}
	redlock := []engine.Mutex{e.Mutex("redlock")}
	for _, other := range others {
		redlock = append(redlock, other.Mutex("redlock"))
	}
	return map[string]acquirer{
		"Mutex":     acquirerOf(e.Mutex("mutex")),
		"Fair":      acquirerOf(e.FairMutex("fair")),
		"Spin":      acquirerOf(e.SpinMutex("spin")),
		"Fenced":    acquirerOf(e.FencedMutex("fenced")),
		"Reader":    acquirerOf(rw.Reader()),
		"Writer":    acquirerOf(rw.Writer()),
		"MultiLock": acquirerOf(engine.Multi(e.Mutex("one"), e.Mutex("two"))),
		"RedLock":   acquirerOf(engine.RedLock(redlock...)),
		"Permit": func(ctx context.Context, try bool, opts ...engine.Option) (func(context.Context), error) {
			acquire := permits.Acquire
			if try {
				acquire = permits.TryAcquire
			}
			h, err := acquire(ctx, 1+rand.IntN(2), opts...)
			return func(ctx context.Context) { _ = h.Unlock(ctx) }, err
		},
		"Semaphore": func(ctx context.Context, try bool, opts ...engine.Option) (func(context.Context), error) {
			if try {
				h, err := count.TryAcquire(ctx, 1)
				return func(ctx context.Context) { _ = h.Release(ctx) }, err
			}
			h, err := count.Acquire(ctx, 1+rand.IntN(2), opts...)
			return func(ctx context.Context) { _ = h.Release(ctx) }, err
		},
	}
}

// acquirerOf is that of a lock.
func acquirerOf[H interface{ Unlock(context.Context) error }](l interface {
	Lock(context.Context, ...engine.Option) (H, error)
	TryLock(context.Context, ...engine.Option) (H, error)
}) acquirer {
	return func(ctx context.Context, try bool, opts ...engine.Option) (func(context.Context), error) {
		acquire := l.Lock
		if try {
			acquire = l.TryLock
		}
		h, err := acquire(ctx, opts...)
		return func(ctx context.Context) { _ = h.Unlock(ctx) }, err
	}
}

// Whoever has waited as long as he may knows why it was in vain: somebody has the lock, or
// the server is away. It is never neither, never both, and for no kind anything else.
func TestLock_GivesUpWhileConnectionsAreCut_SaysHeldOrUnavailable(t *testing.T) {
	t.Parallel()
	const workers, lasts = 8, 2 * time.Second
	s := testkit.Server(t)
	var proxies []*faultproxy.Proxy
	var engines []*engine.Engine
	for range 3 {
		p := faultproxy.New(t, "tcp", s.Addr())
		proxies = append(proxies, p)
		engines = append(engines, testkit.Open(t, "redis://"+p.Addr()+"/"+string(rune('0'+len(engines))), short))
	}
	kinds := everyKind(t, engines[0], engines[1:]...)
	over := time.Now().Add(lasts)
	var wg sync.WaitGroup
	wg.Go(func() {
		for time.Now().Before(over) {
			time.Sleep(50 * time.Millisecond) // how often connections are cut is the test's variable
			for _, p := range proxies {
				p.Cut(faultproxy.All)
			}
		}
	})
	for name, acquire := range kinds {
		for range workers {
			wg.Go(func() { givesUp(t, name, acquire, over) })
		}
	}
	wg.Wait()
}

// givesUp acquires with little patience, again and again.
func givesUp(t *testing.T, name string, acquire acquirer, over time.Time) {
	refused := 0
	for time.Now().Before(over) {
		d := time.Duration(1+rand.IntN(20)) * time.Millisecond
		ctx, cancel := context.Background(), context.CancelFunc(func() {})
		var opts []engine.Option
		how := rand.IntN(3)
		switch how {
		case 0:
			opts = append(opts, engine.Wait(d))
		case 1:
			ctx, cancel = context.WithTimeout(ctx, d)
		}
		giveBack, err := acquire(ctx, how == 2, opts...)
		cancel()
		if err == nil {
			time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond) // how long it is held is the test's variable
			ctx, cancel := context.WithTimeout(context.Background(), d)
			giveBack(ctx)
			cancel()
			continue
		}
		refused++
		held, away := errors.Is(err, engine.ErrHeld), errors.Is(err, engine.ErrUnavailable)
		if how == 2 && errors.Is(err, engine.ErrGrantTooLate) {
			continue // it did not give up
		}
		if !errors.Is(err, engine.ErrNotAcquired) || held == away {
			t.Errorf("%s, after %d refusals: held %t, unavailable %t: %v", name, refused, held, away, err)
			return
		}
	}
}
