package engine

import (
	"sync"
)

// executor runs user code: callbacks and hooks. The default one takes a goroutine
// per task, so a task that blocks delays no other.
//
// Invariant: pending counts the tasks that were accepted and have not returned;
// after close none is accepted, so Wait can only go down.
type executor struct {
	custom func(func())

	mu struct {
		sync.Mutex
		closed  bool
		pending int
		idle    chan struct{} // closed when pending reaches 0 after close
	}
}

// run hands a task to the executor. After close it is dropped.
func (x *executor) run(task func()) {
	if x.custom == nil {
		x.spawn(task)
		return
	}
	if x.begin() {
		x.custom(func() {
			defer x.finished()
			task()
		})
	}
}

// spawn runs a task on a goroutine, whatever the executor. After close it is
// dropped.
func (x *executor) spawn(task func()) {
	if x.begin() {
		go func() {
			defer x.finished()
			task()
		}()
	}
}

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

// close refuses further tasks.
func (x *executor) close() {
	x.mu.Lock()
	x.mu.closed = true
	x.mu.Unlock()
}
