package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/reason"
)

// It is given up after any time, so in any of its steps: while it tries all, gives back,
// waits for the one that is held, pauses, or tries the others. Whatever it was, it ends, and
// nothing is left: no lock, no waiter and no watch of a context.
func TestMultiLockCancelledAtEveryStep(t *testing.T) {
	t.Parallel()
	const times, step = 60, 25 * time.Microsecond // the whole way takes less than a millisecond
	for how, giveUp := range map[string]func(e *Engine, l MultiLock, d time.Duration) (*Hold, error){
		"context": func(_ *Engine, l MultiLock, d time.Duration) (*Hold, error) {
			ctx, cancel := context.WithTimeout(context.Background(), d)
			defer cancel()
			return l.Lock(ctx)
		},
		"context of a future": func(_ *Engine, l MultiLock, d time.Duration) (*Hold, error) {
			ctx, cancel := context.WithTimeout(context.Background(), d)
			defer cancel()
			return l.LockAsync(ctx).Await(ctxT(t))
		},
		"Wait": func(_ *Engine, l MultiLock, d time.Duration) (*Hold, error) {
			return l.LockAsync(ctxT(t), Wait(d)).Await(ctxT(t)) // its context lives on
		},
		"Abandon": func(_ *Engine, l MultiLock, d time.Duration) (*Hold, error) {
			f := l.LockAsync(context.Background())
			time.AfterFunc(d, f.Abandon)
			_, err := f.Await(ctxT(t))
			if err == nil {
				err = reason.ErrAbandoned // too late for the future, not for the lock
			}
			return nil, err
		},
		"Close": func(e *Engine, l MultiLock, d time.Duration) (*Hold, error) {
			time.AfterFunc(d, func() { _ = e.Close() })
			return l.LockAsync(context.Background()).Await(ctxT(t))
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			other, e := open(t, s.URL()), open(t, s.URL())
			taken, givenUp := 0, 0
			for i := range 2 * times {
				n := 3
				if i%2 == 1 {
					n = 2 * manyLocks // these take steps on goroutines
				}
				d := time.Duration(i/2+1) * step
				held := mustLock(t, other.Mutex("n1"))
				time.AfterFunc(d/2, func() { held.UnlockAsync() })
				h, err := giveUp(e, e.Many(someNames(n)...), d)
				switch {
				case err == nil:
					taken++
					_ = h.Unlock(ctxT(t))
				case errors.Is(err, ErrPending):
					t.Fatalf("after %v: %v", d, err)
				default:
					givenUp++
				}
				eventually(t, "nothing is left", func() bool {
					st := e.Stats()
					in := inspect(e)
					return st.Held+st.Waiting+st.InFlight+in.Many+in.Watched == 0 && s.Do("DBSIZE") == int64(0)
				})
				if how == "Close" {
					receive(t, background(e.Close))
					e = open(t, s.URL())
				}
			}
			t.Logf("%d taken, %d given up", taken, givenUp)
			if givenUp == 0 {
				t.Error("none was given up")
			}
			clean(t, s, e, other)
		})
	}
}
