package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/executor"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/redact"
)

// Future is the result of an operation that was started without waiting for it. It
// completes exactly once. All methods may be called from any goroutine, any number of
// times, before and after completion.
//
// Abandon a future whose lock you no longer want. Otherwise the lock stays held as long
// as the engine lives.
type Future[T any] struct {
	source source

	mu        sync.Mutex
	complete  atomic.Bool // set once under mu; then value and err do not change any more
	abandoned bool
	value     T
	err       error
	done      doneChan
	after     *after[T]
}

// after is what is called on completion; most futures are only awaited.
type after[T any] struct {
	then   []func(T, error)
	direct func(T, error) // of this package: see onComplete
}

// callbacks returns after, made if need be. The caller holds mu.
func (f *Future[T]) callbacks() *after[T] {
	if f.after == nil {
		f.after = new(after[T])
	}
	return f.after
}

// source is what a future belongs to: an operation that can be given up, or the Engine.
type source interface {
	// executor runs callbacks.
	executor() *executor.Executor
	// abandon cancels what is pending. It may complete the future.
	abandon()
}

// releasable is a value that somebody has to give back: a Hold, or Permits. giveBack does, perhaps on an event loop.
type releasable interface{ giveBack() }

// drop gives a value back that nobody wants, if it is to be given back.
func drop(value any) {
	if r, is := value.(releasable); is {
		r.giveBack()
	}
}

// Done returns a channel that is closed when the future is complete. The first call
// makes the channel: a future that is only awaited costs none.
func (f *Future[T]) Done() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.done.get(f.complete.Load())
}

// doneChan is a channel that is made when somebody asks for it, and closed when its owner is done.
type doneChan struct{ c chan struct{} }

// get returns the channel. is says whether the owner is done.
func (d *doneChan) get(is bool) <-chan struct{} {
	if d.c == nil {
		d.c = make(chan struct{})
		if is {
			close(d.c)
		}
	}
	return d.c
}

// close is called once, when the owner is done.
func (d *doneChan) close() {
	if d.c != nil {
		close(d.c)
	}
}

// Result returns the result, or ErrPending. It never blocks.
func (f *Future[T]) Result() (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.complete.Load() {
		var none T
		return none, ErrPending
	}
	return f.value, f.err
}

// Await waits for the result. ctx bounds this wait only, not the operation: if ctx ends first, the
// error Is ErrPending and has the context's cause, and the operation continues.
func (f *Future[T]) Await(ctx context.Context) (T, error) {
	if v, err := f.Result(); err != ErrPending {
		return v, err
	}
	if ctx == nil {
		var none T
		return none, lockerr.Wrap(ErrPending, lockerr.ErrNoContext)
	}
	select {
	case <-f.Done():
		return f.Result()
	case <-ctx.Done():
		var none T
		return none, lockerr.Wrap(ErrPending, context.Cause(ctx))
	}
}

// OnComplete registers fn: Config.Executor calls it with the result, never on an event loop
// and, with the default executor, never on the calling goroutine. The functions of one
// future run one after another, in the order of registration. Those of different
// futures do not wait for each other. Close waits for these functions, so fn must not
// call Close. Nobody waits for a function that is called after Close. A nil fn is
// ignored.
func (f *Future[T]) OnComplete(fn func(T, error)) {
	if fn == nil {
		return // and no goroutine of the engine calls it and crashes the process
	}
	f.mu.Lock()
	// If functions registered earlier have not been called yet, the goroutine that
	// calls them calls this one, too.
	a := f.callbacks()
	start := f.complete.Load() && a.then == nil
	a.then = append(a.then, fn)
	f.mu.Unlock()
	if start {
		f.source.executor().Run(f.call)
	}
}

// Abandon gives the future up. A pending acquisition is cancelled, and so is a pending Latch.Await.
// A lock that was granted, or is granted later, is released. An operation that acquires nothing,
// such as Unlock or CountDown, continues, and its effect is not undone: to give up one that takes a
// context, end the context. Abandoning twice, or after Unlock, does no harm.
func (f *Future[T]) Abandon() {
	f.source.abandon()
	f.mu.Lock()
	// Neither cancelled nor complete: granted, and the grant is on its way here.
	// resolve drops it.
	f.abandoned = true
	var unwanted any
	if f.complete.Load() && f.err == nil {
		unwanted = f.value // not before: the goroutine that completes f may be writing it
	}
	f.mu.Unlock()
	drop(unwanted)
}

// Format implements fmt.Formatter: the result, or that there is none yet, whatever the verb. It
// does not wait. (fmt left alone would read fields that others write; a pointer between a Future
// and its fields would cost 16 bytes for each one that is pending.)
func (f *Future[T]) Format(s fmt.State, verb rune) {
	text := "Future(pending)"
	switch {
	case f == nil || !f.complete.Load():
	case f.err != nil:
		text = "Future(" + f.err.Error() + ")"
	default:
		text = fmt.Sprintf("Future(%v)", f.value)
	}
	redact.Format(s, verb, text)
}

// The methods below make an Engine the source of futures. What it does otherwise, such as a release, is not taken back.

func (e *Engine) executor() *executor.Executor { return &e.exec }
func (e *Engine) abandon()                     {}

// failedFuture is a future that failed before anything was begun; e may be nil.
func failedFuture[T any](e *Engine, err error) *Future[T] {
	if e == nil {
		e = noEngine() // for its executor
	}
	f := &Future[T]{source: e}
	var none T
	f.resolve(none, err)
	return f
}

// resolve completes the future, once.
func (f *Future[T]) resolve(value T, err error) {
	f.mu.Lock()
	if f.complete.Load() {
		panic("BUG: engine: future completed twice")
	}
	f.value, f.err = value, err
	f.complete.Store(true)
	f.done.close()
	var direct func(T, error)
	call := false
	if f.after != nil {
		direct, f.after.direct = f.after.direct, nil
		call = f.after.then != nil
	}
	unwanted := f.abandoned && err == nil
	f.mu.Unlock()
	if direct != nil {
		direct(value, err)
	}
	if call {
		f.source.executor().Run(f.call)
	}
	if unwanted {
		drop(value)
	}
}

// await is the synchronous half of a pending operation, whose future this is.
func (f *Future[T]) await(ctx context.Context, op *driver.Pending) (T, error) {
	if !f.complete.Load() {
		op.Await(ctx, f.Done(), f.Abandon)
	}
	return f.Result()
}

// onComplete has fn called on the goroutine that completes the future, perhaps an event
// loop, with no lock held. So fn is never a user's, and does not block.
func (f *Future[T]) onComplete(fn func(T, error)) {
	f.mu.Lock()
	complete := f.complete.Load()
	if !complete {
		a := f.callbacks()
		if before := a.direct; before != nil { // several await it
			later := fn
			fn = func(v T, err error) { before(v, err); later(v, err) }
		}
		a.direct = fn
	}
	f.mu.Unlock()
	if complete {
		fn(f.value, f.err)
	}
}

// call runs the registered functions in order, those included that are registered
// meanwhile: then is set to nil only when it was seen empty, so that exactly one
// goroutine is in here. If a function does not return (it calls runtime.Goexit, or panics
// on an executor that recovers), another task goes on with those after it.
func (f *Future[T]) call() {
	through := false
	defer func() {
		if !through {
			f.source.executor().Run(f.call)
		}
	}()
	f.mu.Lock()
	for len(f.after.then) > 0 {
		fn := f.after.then[0]
		f.after.then[0] = nil
		f.after.then = f.after.then[1:]
		f.mu.Unlock()
		fn(f.value, f.err)
		f.mu.Lock()
	}
	f.after.then = nil
	f.mu.Unlock()
	through = true
}

// AwaitAll waits for all futures and returns their values in order. On the first error
// of any of them, or when ctx ends, it abandons all of them and returns that error.
func AwaitAll[T any](ctx context.Context, futures ...*Future[T]) ([]T, error) {
	values := make([]T, len(futures))
	next, err := results(ctx, futures)
	for i := 0; i < len(futures) && err == nil; i++ {
		var ended int
		var value T
		if ended, value, err = next(); err == nil {
			values[ended] = value
		}
	}
	if err != nil {
		abandonAll(futures)
		return nil, err
	}
	return values, nil
}

// results returns a function that waits for the next of the futures that is complete, and returns its index and
// result; -1 and why, if ctx ends first.
func results[T any](ctx context.Context, futures []*Future[T]) (next func() (int, T, error), err error) {
	if ctx == nil {
		return nil, lockerr.ErrNoContext
	}
	ended := make(chan int, len(futures))
	for i, f := range futures {
		f.onComplete(func(T, error) { ended <- i }) // it has room
	}
	return func() (int, T, error) {
		select {
		case i := <-ended:
			value, err := futures[i].Result()
			return i, value, err
		case <-ctx.Done():
			var none T
			return -1, none, lockerr.Wrap(ErrPending, context.Cause(ctx))
		}
	}, nil
}

func abandonAll[T any](futures []*Future[T]) {
	for _, f := range futures {
		f.Abandon()
	}
}

// AwaitAny waits for the first future that succeeds, abandons all the others, and
// returns its index and value. If none succeeds, or ctx ends, it abandons all of them
// and returns the error of the last one, or the context's.
func AwaitAny[T any](ctx context.Context, futures ...*Future[T]) (int, T, error) {
	var none T
	if len(futures) == 0 {
		return -1, none, lockerr.Invalid("AwaitAny of no futures")
	}
	next, err := results(ctx, futures)
	if err != nil {
		abandonAll(futures)
		return -1, none, err
	}
	for range futures {
		ended, value, why := next()
		if why == nil {
			for _, f := range futures {
				if f != futures[ended] { // the same future may be there twice
					f.Abandon()
				}
			}
			return ended, value, nil
		}
		if err = why; ended < 0 || ctx.Err() != nil {
			break
		}
	}
	abandonAll(futures)
	return -1, none, err
}
