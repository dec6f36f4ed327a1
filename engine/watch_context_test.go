package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
)

// nosyContext is a context of the user's that looks where its methods are called from.
type nosyContext struct {
	context.Context
	t     *testing.T
	asked *atomic.Int32
}

func (c nosyContext) Done() <-chan struct{} { c.look("Done"); return c.Context.Done() }
func (c nosyContext) Err() error            { c.look("Err"); return c.Context.Err() }
func (c nosyContext) Value(key any) any     { c.look("Value"); return c.Context.Value(key) }

func (c nosyContext) look(method string) {
	c.asked.Add(1)
	if s := stack(); onLoop(s) {
		c.t.Errorf("%s of a user's context is called on an event loop or a timer:\n%s", method, s)
	}
}

// nosyAfterFunc has package context use a method of its own.
type nosyAfterFunc struct{ nosyContext }

func (c nosyAfterFunc) AfterFunc(f func()) (stop func() bool) {
	c.look("AfterFunc")
	inner := context.AfterFunc(c.Context, f)
	return func() bool { c.look("stop"); return inner() }
}

// The verdict of a future ends its watch, and arrives on an event loop.
func TestContextsOfTheUserAreAskedNothingOnAnEventLoop(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(nosyContext) context.Context{
		"a context":                   func(c nosyContext) context.Context { return c },
		"a context with AfterFunc":    func(c nosyContext) context.Context { return nosyAfterFunc{c} },
		"made from a context":         func(c nosyContext) context.Context { return context.WithValue(c, holdsKey{}, nil) },
		"a context that knows nobody": func(c nosyContext) context.Context { return strangeContext{c, make(chan struct{})} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := open(t, server(t).URL())
			inner, cancel := context.WithCancel(ctxT(t))
			defer cancel()
			nosy := nosyContext{inner, t, new(atomic.Int32)}
			ctx := of(nosy)
			for range 2 {
				h, err := e.Mutex("x").LockAsync(ctx).Await(ctxT(t))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := e.Mutex("x").TryLockAsync(ctx).Await(ctxT(t)); err == nil {
					t.Error("taken twice")
				}
				mustUnlock(t, h)
			}
			if nosy.asked.Load() == 0 {
				t.Error("the context was not asked at all")
			}
			if n := e.watches.Len(); n > 0 {
				t.Errorf("%d contexts are watched for nobody", n)
			}
		})
	}
}

// strangeContext has a Done of its own.
type strangeContext struct {
	nosyContext
	done chan struct{}
}

func (c strangeContext) Done() <-chan struct{} { c.look("Done"); return c.done }

// muteContext is a context of the user's that panics when package context asks for its
// inside.
type muteContext struct{ context.Context }

func (c muteContext) Value(key any) any {
	if _, ok := key.(holdsKey); !ok {
		panic("a broken context")
	}
	return c.Context.Value(key)
}

// Futures whose contexts share a Done share a watch. If it cannot be set up for one of
// them, the others are cancelled anyway.
func TestContextThatPanicsInLockAsyncLeavesOthersTheirCancel(t *testing.T) {
	t.Parallel()
	e := open(t, server(t).URL())
	mustLock(t, e.Mutex("x"))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	func() {
		defer func() {
			if v := recover(); v != "a broken context" {
				t.Errorf("recovered %v", v)
			}
		}()
		e.Mutex("x").LockAsync(muteContext{ctx})
	}()
	f := e.Mutex("x").LockAsync(ctx)
	cancel()
	_, err := f.Await(ctxT(t))
	if !errors.Is(err, ErrNotAcquired) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n := e.Stats().Waiting; n != 0 {
		t.Errorf("%d wait", n)
	}
}
