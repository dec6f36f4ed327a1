package enginetest_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/enginetest"
)

// slowContext is a context of the user's that takes a while to end what was made from it.
type slowContext struct {
	context.Context
	slow *atomic.Bool
}

func (c slowContext) Done() <-chan struct{} {
	if c.slow.CompareAndSwap(true, false) {
		<-time.After(50 * time.Millisecond) // virtual
	}
	return c.Context.Done()
}

// A hold ends, and while its contexts do the lock is taken away from it. Another of its process that gets
// the lock is told when they have ended.
func TestAGrantWaitsForContextsThatAreEndingAlready(t *testing.T) {
	t.Parallel()
	for _, kinds := range [][2]string{{"FairMutex", "FairMutex"}, {"Reader", "Writer"}, {"Writer", "Reader"}} {
		for name, end := range map[string]func(h *engine.Hold){
			"unlocked": func(h *engine.Hold) { go func() { _ = h.Unlock(context.Background()) }() },
			"lost":     func(*engine.Hold) {}, // by its MaxHold
		} {
			t.Run(kinds[0]+", "+kinds[1]+", "+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					env := enginetest.NewVirtual(t)
					h, err := locks[kinds[0]](env.Engine).Lock(t.Context(), engine.MaxHold(10*time.Second))
					if err != nil {
						t.Fatal(err)
					}
					slow := new(atomic.Bool)
					h.Context(slowContext{t.Context(), slow})
					under := h.Context(t.Context())
					f := locks[kinds[1]](env.Engine).LockAsync(t.Context())
					alive := make(chan error, 1)
					f.OnComplete(func(*engine.Hold, error) { alive <- under.Err() })
					time.Sleep(9990 * time.Millisecond)
					slow.Store(true)
					end(h)
					time.Sleep(20 * time.Millisecond)
					if under.Err() != nil || h.Err() == nil {
						t.Fatalf("the hold: %v, its context: %v", h.Err(), under.Err())
					}
					env.Expire("x")
					if <-alive == nil {
						t.Error("another has the lock, and a context of the hold is alive")
					}
					next, err := f.Await(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					unlock(t, next)
				})
			})
		}
	}
}
