package durability

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// If too few replicas acknowledge a grant, what was taken is given back, whatever it is: once, and
// no more than was taken.
func TestTooFewAcknowledgementsGiveEveryKindBackOnce(t *testing.T) {
	t.Parallel()
	locks := map[string]func(e *engine.Engine) engine.Mutex{
		"fair":   func(e *engine.Engine) engine.Mutex { return e.FairMutex("x") },
		"fenced": func(e *engine.Engine) engine.Mutex { return e.FencedMutex("x") },
		"spin":   func(e *engine.Engine) engine.Mutex { return e.SpinMutex("x") },
		"reader": func(e *engine.Engine) engine.Mutex { return e.RWMutex("x").Reader() },
		"writer": func(e *engine.Engine) engine.Mutex { return e.RWMutex("x").Writer() },
	}
	kinds := map[string]func(e *engine.Engine, opts ...engine.Option) (*engine.Hold, error){
		"permits": func(e *engine.Engine, opts ...engine.Option) (*engine.Hold, error) {
			return e.PermitSemaphore("p").Acquire(testkit.Ctx(t), 2, opts...)
		},
	}
	for name, lock := range locks {
		kinds[name] = func(e *engine.Engine, opts ...engine.Option) (*engine.Hold, error) {
			return lock(e).Lock(testkit.Ctx(t), opts...)
		}
	}
	testkit.Steady(t, func(t testing.TB) {
		f := newFleet(t, 2)
		e := f.open(testkit.AckTimeout(time.Second))
		if err := e.PermitSemaphore("p").SetPermits(testkit.Ctx(t), 3); err != nil {
			t.Fatal(err)
		}
		testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x"), engine.Acked(engine.AllReplicas))) // all connections are up
		left := func() []any {
			return []any{f.primary.Do("GET", "p"), f.primary.Do("EXISTS", "{p}:timeout"),
				f.primary.Do("DBSIZE").(int64) - f.primary.Do("EXISTS", "redisson_lock_token:{x}").(int64)}
		}
		f.links[0].Hold()
		for name, take := range kinds {
			before, compensated := f.scripts(), e.Stats().Compensations
			_, err := take(e, engine.Acked(engine.AllReplicas))
			testkit.WantNotAcked(t, err, 1, 2)
			if !errors.Is(err, engine.ErrNotAcquired) {
				t.Errorf("%s: %v", name, err)
			}
			testkit.Eventually(t, name+" is given back", func() bool {
				l := left()
				return e.Stats().InFlight == 0 && l[1] == int64(0) && l[2] == int64(1)
			})
			if n := f.scripts() - before; n != 2 {
				t.Errorf("%s: %d scripts, want one that takes and one that gives back", name, n)
			}
			if n := e.Stats().Compensations - compensated; n != 1 {
				t.Errorf("%s: %d compensations", name, n)
			}
			if l := left(); l[0] != "3" {
				t.Errorf("%s: %v permits are left of 3", name, l[0])
			}
			h, err := take(e, engine.Acked(1)) // one is enough for a caller that asks for one
			if err != nil {
				t.Fatal(name, err)
			}
			if err := h.Unlock(testkit.Ctx(t)); err != nil {
				t.Error(name, err)
			}
		}
	})
}

// If too few replicas acknowledge a Downgrade, the read lock is given back, and the writer writes on.
func TestADowngradeThatIsNotAcknowledgedLeavesTheWriter(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		f := newFleet(t, 1)
		e := f.open(testkit.AckTimeout(time.Second))
		l := e.RWMutex("x")
		w := testkit.MustLock(t, l.Writer(), engine.Acked(1))
		f.links[0].Hold()
		_, err := l.Downgrade(testkit.Ctx(t), w, engine.Acked(1))
		testkit.WantNotAcked(t, err, 0, 1)
		testkit.Eventually(t, "only the writer is left", func() bool {
			fields := testkit.Fields(t, f.primary, "x")
			return len(fields) == 2 && fields["mode"] == "write" && fields[w.Owner()] == "1" && f.primary.Do("DBSIZE") == int64(1)
		})
		if err := w.Err(); err != nil {
			t.Errorf("the writer: %v", err)
		}
		f.links[0].Release()
		testkit.Eventually(t, "the replica keeps up again, and it succeeds", func() bool {
			r, err := l.Downgrade(testkit.Ctx(t), w, engine.Acked(1))
			if err == nil {
				testkit.MustUnlock(t, r)
			}
			return err == nil
		})
		testkit.Clean(t, f.primary, e)
	})
}
