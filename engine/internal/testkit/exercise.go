package testkit

import (
	"context"
	"fmt"
	"testing"

	"github.com/pawl-lock/pawl/engine"
)

// Spread returns names that lie in many slots, apart from those of other tests.
func Spread(t testing.TB, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s/%d", t.Name(), i)
		if i%3 == 2 {
			names[i] = fmt.Sprintf("%s/{%d}", t.Name(), i)
		}
	}
	return names
}

// LocalHandOver proves that a waiter is woken, on a site that both engines use.
// The lease is 30 s: a waiter that is not woken sleeps longer than the test.
func HandsOver(t *testing.T, _ *Site, a, b *engine.Engine) {
	names := Spread(t, 60)
	holds := make([]*engine.Hold, len(names))
	futures := make([]*engine.Future[*engine.Hold], len(names))
	for i, name := range names {
		holds[i] = MustLock(t, a.Mutex(name))
		futures[i] = b.Mutex(name).LockAsync(Ctx(t))
	}
	Eventually(t, "all listen", func() bool { return Client(b).Stats().ChannelsConfirmed == len(names) })
	for _, h := range holds {
		MustUnlock(t, h)
	}
	for _, f := range futures {
		h, err := f.Await(Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		MustUnlock(t, h)
	}
}

// Contends proves that eight who want one name have it one at a time.
func Contends(t *testing.T, _ *Site, a, b *engine.Engine) {
	name := Spread(t, 1)[0]
	inside := 0
	done := make(chan error)
	const workers, rounds = 8, 15
	for i := range workers {
		m := []*engine.Engine{a, b}[i%2].Mutex(name)
		go func() {
			for range rounds {
				err := m.Do(Ctx(t), func(context.Context, *engine.Hold) error {
					inside++
					return nil
				})
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range workers {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if inside != workers*rounds {
		t.Errorf("%d of %d", inside, workers*rounds)
	}
}

// EveryLock calls every form of acquiring and returns the errors by name.
func EveryLock(ctx context.Context, m engine.Mutex, opts ...engine.Option) map[string]error {
	never := func(context.Context, *engine.Hold) error { panic("ran without the lock") }
	errs := map[string]error{
		"Lock":         ErrOf(m.Lock(ctx, opts...)),
		"TryLock":      ErrOf(m.TryLock(ctx, opts...)),
		"LockAsync":    ErrOf(m.LockAsync(ctx, opts...).Await(ctx)),
		"TryLockAsync": ErrOf(m.TryLockAsync(ctx, opts...).Await(ctx)),
		"Do":           m.Do(ctx, never, opts...),
		"TryDo":        ErrOf(m.TryDo(ctx, never, opts...)),
	}
	return errs
}

// ManyLocks is how many locks an engine gives back, or asks for, on an event loop at most.
const ManyLocks = 16
