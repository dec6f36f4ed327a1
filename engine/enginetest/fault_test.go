package enginetest_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/enginetest"
)

var locks = map[string]func(e *engine.Engine) engine.Mutex{
	"Mutex":       func(e *engine.Engine) engine.Mutex { return e.Mutex("x") },
	"FencedMutex": func(e *engine.Engine) engine.Mutex { return e.FencedMutex("x") },
	"FairMutex":   func(e *engine.Engine) engine.Mutex { return e.FairMutex("x") },
	"Reader":      func(e *engine.Engine) engine.Mutex { return e.RWMutex("x").Reader() },
	"Writer":      func(e *engine.Engine) engine.Mutex { return e.RWMutex("x").Writer() },
}

// In virtual time: waiters of a FairMutex try by themselves after some seconds.
func TestExpireLetsWaitersOfEveryKindInAtOnce(t *testing.T) {
	t.Parallel()
	for name, kind := range locks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				env := enginetest.NewVirtual(t)
				holder := kind(env.Engine)
				if name == "Reader" {
					holder = env.Engine.RWMutex("x").Writer()
				}
				h, err := holder.Lock(t.Context(), engine.Lease(time.Hour))
				if err != nil {
					t.Fatal(err)
				}
				f := kind(env.Open()).LockAsync(t.Context())
				synctest.Wait() // it listens
				start := time.Now()
				env.Expire("x")
				next, err := f.Await(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if late := time.Since(start); late > time.Second {
					t.Errorf("the waiter tried after %v", late)
				}
				if err := h.Unlock(t.Context()); !errors.Is(err, engine.ErrLost) {
					t.Errorf("Unlock of the expired hold: %v", err)
				}
				unlock(t, next)
			})
		})
	}
}

// The time is virtual, so the waiter sleeps for nearly an hour unless it is told.
func TestStealIsReportedAtOnceByWaitersOfItsEngine(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Mutex", "FencedMutex", "Writer"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				env := enginetest.NewVirtual(t)
				m := locks[name](env.Engine)
				h, err := m.Lock(t.Context(), engine.Lease(time.Hour)) // no renewal finds it
				if err != nil {
					t.Fatal(err)
				}
				f := m.LockAsync(t.Context())
				synctest.Wait() // it listens
				start := time.Now()
				env.Steal("x")
				<-h.Done()
				if late := time.Since(start); late > time.Second {
					t.Errorf("the holder was told after %v: %v", late, h.Err())
				}
				lost(t, h, engine.RemovedOnServer)
				env.Expire("x")
				next, err := f.Await(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				unlock(t, next)
			})
		})
	}
}

func TestSteal_LeaseOfTheStranger_IsThatOfAnEngine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		env := enginetest.NewVirtual(t)
		env.Steal("x")
		var refused *engine.NotAcquiredError
		_, err := env.Engine.Mutex("x").TryLock(t.Context())
		if !errors.As(err, &refused) || refused.TTL > 30*time.Second || refused.TTL < 29*time.Second {
			t.Errorf("%v", err)
		}
		time.Sleep(31 * time.Second)
		unlock(t, lock(t, env.Engine, "x"))
	})
}
