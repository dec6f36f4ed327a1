// Package executor runs user code, callbacks and the Observer, on goroutines that Close can wait
// for: never on the goroutine that has it run, which may be an event loop. It knows nothing
// of locks.
package executor

import (
	"context"
	"runtime/pprof"
	"sync"
)

// userCode labels the goroutines that run user code. Otherwise they would have the label of
// the goroutine that started them, such as an event loop.
var userCode = pprof.WithLabels(context.Background(), pprof.Labels("role", "engine user code"))

func (x *Executor) goUserCode(f func()) {
	start := x.start
	if start == nil { // of a future that failed before there was an engine
		start = func(f func()) { go f() }
	}
	start(func() {
		pprof.SetGoroutineLabels(userCode)
		f()
	})
}

// Executor runs user code: callbacks and the Observer. The zero value is ready for use; see Init. It
// takes a goroutine per task, so a task that blocks delays no other. If the user has one, that
// is user code too and may block until it has room. Tasks come from event loops, so a
// goroutine of its own feeds it, for as long as there are tasks.
//
// Invariant: pending counts the tasks that were accepted and have not returned;
// after Close none is accepted, so it can only go down.
type Executor struct {
	start  func(func()) // runs a function on a goroutine; nil: go
	custom func(func())

	mu struct {
		sync.Mutex
		closed  bool
		pending int
		idle    chan struct{} // closed when pending reaches 0
	}
	queue Queue // for custom
}

// Init sets what starts goroutines, and the user's executor; both may be nil.
func (x *Executor) Init(start func(func()), custom func(func())) {
	x.start, x.custom = start, custom
	x.queue.Init(x, 0)
}

// Run hands a task to the executor. It never blocks. After Close the task gets a
// goroutine that nobody waits for: a callback that is never called would be worse.
func (x *Executor) Run(task func()) {
	if x.custom == nil {
		x.Spawn(task)
		return
	}
	if !x.begin() {
		x.goUserCode(task)
		return
	}
	x.queue.Push(func() {
		x.custom(func() {
			defer x.finished()
			task()
		})
	})
}

// Spawn runs a task on a goroutine, whatever the executor.
func (x *Executor) Spawn(task func()) {
	if !x.begin() {
		x.goUserCode(task)
		return
	}
	x.goUserCode(func() {
		defer x.finished()
		task()
	})
}

// begin counts a task, unless the executor is closed.
func (x *Executor) begin() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.closed {
		return false
	}
	x.mu.pending++
	return true
}

func (x *Executor) finished() {
	x.mu.Lock()
	x.mu.pending--
	if x.mu.pending == 0 && x.mu.idle != nil {
		close(x.mu.idle)
		x.mu.idle = nil
	}
	x.mu.Unlock()
}

// Idle returns a channel that is closed when no task is pending.
func (x *Executor) Idle() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.idle != nil {
		return x.mu.idle
	}
	c := make(chan struct{})
	if x.mu.pending == 0 {
		close(c)
		return c
	}
	x.mu.idle = c
	return c
}

// Close ends the counting of tasks.
func (x *Executor) Close() {
	x.mu.Lock()
	x.mu.closed = true
	x.mu.Unlock()
}
