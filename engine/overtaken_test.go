package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

type overtakenKey struct{}

// Waiters of a FairMutex, and readers, are apart from the hold that keeps them waiting. When one of
// them is granted the lock, because it was taken away from that hold, the hold has ended by then.
func TestAHoldThatWasTakenAwayEndsBeforeAnotherOfItsProcessHasTheLock(t *testing.T) {
	t.Parallel()
	fair := func(e *Engine) Mutex { return e.FairMutex("x").Mutex }
	reader := func(e *Engine) Mutex { return e.RWMutex("x").Reader() }
	writer := func(e *Engine) Mutex { return e.RWMutex("x").Writer() }
	for name, x := range map[string]struct {
		held, waits func(e *Engine) Mutex
		readers     int
	}{
		"fair":                                   {fair, fair, 1},
		"a reader, and a writer waits":           {reader, writer, 1},
		"a crowd of readers, and a writer waits": {reader, writer, 100},
		"a writer, and a reader waits":           {writer, reader, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steady(t, func(t testing.TB) { // a grant waits for contexts for 100 ms
				s := server(t)
				a, b := open(t, s.URL()), open(t, s.URL())
				var held []*Hold
				for range x.readers {
					held = append(held, mustLock(t, x.held(a), Lease(time.Minute)))
				}
				waits := x.waits(a).LockAsync(ctxT(t))
				eventually(t, "it listens", func() bool { return a.table.Client.Stats().ChannelsConfirmed > 0 })
				under := context.WithValue(held[0].Context(ctxT(t)), overtakenKey{}, 1)
				told := make(chan error, x.readers+1)
				waits.OnComplete(func(*Hold, error) {
					told <- under.Err()
					for _, h := range held {
						told <- h.Err()
					}
				})
				if done, err := x.held(b).ForceUnlock(ctxT(t)); !done || err != nil {
					t.Fatal(done, err)
				}
				if receive(t, told) == nil {
					t.Error("another has the lock, and a context of this hold is alive")
				}
				for range x.readers {
					var lost *LostError
					if err := receive(t, told); !errors.As(err, &lost) || lost.Reason != GoneOnServer {
						t.Errorf("another has the lock, and this hold: %v", err)
					}
				}
				h, err := waits.Await(ctxT(t))
				if err != nil {
					t.Fatal(err)
				}
				if err := h.Err(); err != nil {
					t.Error(err)
				}
				for _, h := range held {
					receive(t, h.Done())
					if err := h.Unlock(ctxT(t)); !errors.Is(err, ErrLost) {
						t.Errorf("Unlock of what was lost: %v", err)
					}
				}
				if n := a.Stats().Lost[GoneOnServer]; n != uint64(x.readers) {
					t.Errorf("%d are counted as lost", n)
				}
				mustUnlock(t, h)
				clean(t, s, a)
			})
		})
	}
}

// A writer was deleted, and nobody was told. A reader of its process waits for the one before, which is
// what it hears of. When it has the lock the writer has ended.
func TestAWriterThatWasTakenAwayEndsBeforeAReaderOfItsProcessHasTheLock(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) { // a grant waits for contexts for 100 ms
		s := server(t)
		a, b := open(t, s.URL()), open(t, s.URL())
		before := mustLock(t, b.RWMutex("x").Writer(), Lease(time.Minute))
		reader := a.RWMutex("x").Reader().LockAsync(ctxT(t))
		eventually(t, "it listens", func() bool { return a.table.Client.Stats().ChannelsConfirmed > 0 })
		// It tries once more when it listens, and would get what is deleted by then.
		eventually(t, "it has tried again", func() bool { return s.CommandStats()["evalsha"] >= 3 && a.Stats().InFlight == 0 })
		s.Do("DEL", "x")
		writer := mustLock(t, a.RWMutex("x").Writer(), Lease(time.Minute))
		under := writer.Context(ctxT(t))
		told := make(chan error, 2)
		reader.OnComplete(func(*Hold, error) { told <- writer.Err(); told <- under.Err() })
		if done, err := b.RWMutex("x").Writer().ForceUnlock(ctxT(t)); !done || err != nil {
			t.Fatal(done, err)
		}
		var lost *LostError
		if err := receive(t, told); !errors.As(err, &lost) || lost.Reason != GoneOnServer {
			t.Errorf("a reader has the lock, and the writer: %v", err)
		}
		if receive(t, told) == nil {
			t.Error("a context of the writer is alive")
		}
		h, err := reader.Await(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, h)
		if err := before.Unlock(ctxT(t)); !errors.Is(err, ErrLost) {
			t.Errorf("Unlock of the first: %v", err)
		}
		clean(t, s, a)
	})
}

// gatedContext is a context of the user's whose Done does something, once that is wanted.
type gatedContext struct {
	context.Context
	wanted *atomic.Bool
	do     func()
}

func (c gatedContext) Done() <-chan struct{} {
	if c.wanted.CompareAndSwap(true, false) {
		c.do()
	}
	return c.Context.Done()
}

// A context of a reader that was taken away does not return when it ends, or ends the goroutine that tells
// it. All readers have ended when the writer is granted, and that waits for no context of theirs.
func TestAGrantDoesNotHangOnTheContextsOfWhatItExcludes(t *testing.T) {
	t.Parallel()
	for _, leaves := range []bool{false, true} {
		t.Run(fmt.Sprint("leaves ", leaves), func(t *testing.T) {
			t.Parallel()
			s := server(t)
			a, b := open(t, s.URL()), open(t, s.URL())
			first, second := mustLock(t, a.RWMutex("x").Reader()), mustLock(t, a.RWMutex("x").Reader())
			open, wanted := make(chan struct{}), new(atomic.Bool)
			do := func() { <-open }
			if leaves {
				do = runtime.Goexit
			}
			first.Context(gatedContext{ctxT(t), wanted, do})
			under := second.Context(ctxT(t))
			waits := a.RWMutex("x").Writer().LockAsync(ctxT(t))
			eventually(t, "it listens", func() bool { return a.table.Client.Stats().ChannelsConfirmed > 0 })
			wanted.Store(true)
			if done, err := b.RWMutex("x").Reader().ForceUnlock(ctxT(t)); !done || err != nil {
				t.Fatal(done, err)
			}
			h, err := waits.Await(ctxT(t))
			if err != nil {
				t.Fatal(err)
			}
			for _, reader := range []*Hold{first, second} {
				if !errors.Is(reader.Err(), ErrLost) {
					t.Errorf("a reader: %v", reader.Err())
				}
			}
			receive(t, under.Done())
			receive(t, second.Done())
			close(open)
			mustUnlock(t, h)
			clean(t, s, a)
		})
	}
}
