package engine

import (
	"context"
	"runtime/pprof"
	"sync"
)

// userCode labels the goroutines that run user code. Otherwise they would have the label of
// the goroutine that started them, such as an event loop.
var userCode = pprof.WithLabels(context.Background(), pprof.Labels("role", "engine user code"))

func (x *executor) goUserCode(f func()) {
	start := x.start
	if start == nil { // of a future that failed before there was an engine
		start = func(f func()) { go f() }
	}
	start(func() {
		pprof.SetGoroutineLabels(userCode)
		f()
	})
}

// executor runs user code: callbacks and hooks. The default one takes a goroutine
// per task, so a task that blocks delays no other. A custom one is user code too
// and may block until it has room. Tasks come from event loops, so a goroutine of its
// own feeds it, for as long as there are tasks.
//
// Invariant: pending counts the tasks that were accepted and have not returned;
// after close none is accepted, so it can only go down.
type executor struct {
	start  func(func()) // runs a function on a goroutine; nil: go
	custom func(func())

	mu struct {
		sync.Mutex
		closed  bool
		pending int
		idle    chan struct{} // closed when pending reaches 0
		queue   []func()      // for custom
		feeding bool
	}
}

// run hands a task to the executor. It never blocks. After close the task gets a
// goroutine that nobody waits for: a callback that is never called would be worse.
func (x *executor) run(task func()) {
	if x.custom == nil {
		x.spawn(task)
		return
	}
	if !x.begin() {
		x.goUserCode(task)
		return
	}
	x.mu.Lock()
	x.mu.queue = append(x.mu.queue, func() {
		defer x.finished()
		task()
	})
	start := !x.mu.feeding
	if start {
		x.mu.feeding = true
		x.mu.pending++ // the goroutine itself
	}
	x.mu.Unlock()
	if start {
		x.goUserCode(x.feed)
	}
}

// feed gives the queued tasks to the custom executor, one after another. Close
// waits for it, as it does for the tasks. An executor that runs a task right here may have
// it end the goroutine (runtime.Goexit). Then another one goes on after that task.
func (x *executor) feed() {
	var queue []func()
	through := false
	defer func() {
		if through {
			x.finished()
			return
		}
		x.mu.Lock()
		x.mu.queue = append(queue, x.mu.queue...)
		x.mu.Unlock()
		x.goUserCode(x.feed)
	}()
	for {
		x.mu.Lock()
		queue = x.mu.queue
		x.mu.queue = nil
		x.mu.feeding = len(queue) > 0
		x.mu.Unlock()
		if len(queue) == 0 {
			through = true
			return
		}
		for len(queue) > 0 {
			task := queue[0]
			queue = queue[1:]
			x.custom(task)
		}
	}
}

// spawn runs a task on a goroutine, whatever the executor.
func (x *executor) spawn(task func()) {
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
func (x *executor) begin() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.closed {
		return false
	}
	x.mu.pending++
	return true
}

func (x *executor) finished() {
	x.mu.Lock()
	x.mu.pending--
	if x.mu.pending == 0 && x.mu.idle != nil {
		close(x.mu.idle)
		x.mu.idle = nil
	}
	x.mu.Unlock()
}

// idle returns a channel that is closed when no task is pending.
func (x *executor) idle() <-chan struct{} {
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

// quiet waits until no task is pending, and reports whether that came before stop.
func (x *executor) quiet(stop <-chan struct{}) bool {
	idle := x.idle()
	select {
	case <-idle:
		return true
	case <-stop:
	}
	select {
	case <-idle: // both
		return true
	default:
		return false
	}
}

// close ends the counting of tasks.
func (x *executor) close() {
	x.mu.Lock()
	x.mu.closed = true
	x.mu.Unlock()
}
