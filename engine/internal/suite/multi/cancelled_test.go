package multi

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// It is given up after any time, so in any of its steps: while it tries all, gives back,
// waits for the one that is held, pauses, or tries the others. Whatever it was, it ends, and
// nothing is left: no lock, no waiter and no watch of a context.
func TestMultiLock_CancelledAtEveryStep_LeavesNothing(t *testing.T) {
	t.Parallel()
	const times, step = 30, 50 * time.Microsecond // the whole way takes less than a millisecond
	for how, giveUp := range map[string]func(e *engine.Engine, l engine.MultiLock, d time.Duration) (*engine.Hold, error){
		"context": func(_ *engine.Engine, l engine.MultiLock, d time.Duration) (*engine.Hold, error) {
			ctx, cancel := context.WithTimeout(context.Background(), d)
			defer cancel()
			return l.Lock(ctx)
		},
		"context of a future": func(_ *engine.Engine, l engine.MultiLock, d time.Duration) (*engine.Hold, error) {
			ctx, cancel := context.WithTimeout(context.Background(), d)
			defer cancel()
			return l.LockAsync(ctx).Await(testkit.Ctx(t))
		},
		"Wait": func(_ *engine.Engine, l engine.MultiLock, d time.Duration) (*engine.Hold, error) {
			return l.LockAsync(testkit.Ctx(t), engine.Wait(d)).Await(testkit.Ctx(t)) // its context lives on
		},
		"Abandon": func(_ *engine.Engine, l engine.MultiLock, d time.Duration) (*engine.Hold, error) {
			f := l.LockAsync(context.Background())
			time.AfterFunc(d, f.Abandon)
			_, err := f.Await(testkit.Ctx(t))
			if err == nil {
				err = lockerr.ErrAbandoned // too late for the future, not for the lock
			}
			return nil, err
		},
		"Close": func(e *engine.Engine, l engine.MultiLock, d time.Duration) (*engine.Hold, error) {
			time.AfterFunc(d, func() { _ = e.Close() })
			return l.LockAsync(context.Background()).Await(testkit.Ctx(t))
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := testkit.Server(t)
			other, e := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
			taken, givenUp := 0, 0
			for i := range 2 * times {
				n := 3
				if i%2 == 1 {
					n = 2 * testkit.ManyLocks // these take steps on goroutines
				}
				d := time.Duration(i/2+1) * step
				held := testkit.MustLock(t, other.Mutex("n1"))
				time.AfterFunc(d/2, func() { held.UnlockAsync() })
				h, err := giveUp(e, e.Many(testkit.Names(n)...), d)
				switch {
				case err == nil:
					taken++
					_ = h.Unlock(testkit.Ctx(t))
				case errors.Is(err, engine.ErrPending):
					t.Fatalf("after %v: %v", d, err)
				default:
					givenUp++
				}
				testkit.Eventually(t, "nothing is left", func() bool {
					st := e.Stats()
					in := testkit.Inside(e)
					return st.Held+st.Waiting+st.InFlight+in.Many+in.Watched == 0 && s.Do("DBSIZE") == int64(0)
				})
				if how == "Close" {
					testkit.Receive(t, testkit.Background(e.Close))
					e = testkit.Open(t, s.URL())
				}
			}
			t.Logf("%d taken, %d given up", taken, givenUp)
			if givenUp == 0 {
				t.Error("none was given up")
			}
			testkit.Clean(t, s, e, other)
		})
	}
}
