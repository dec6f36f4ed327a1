package sim

import (
	"context"
	"fmt"
	"iter"
	"runtime/debug"
	"slices"
	"time"
)

// thread is a goroutine of a process: a coroutine, which runs until it waits for something
// or ends. So there is one at a time, and what a program calls may block. After each event
// the world looks for threads that have nothing to wait for any more; they go on a moment later, as an
// event of its process.
type thread struct {
	p     *process
	task  func()             // nil: it has none
	waits [3]<-chan struct{} // while it is parked
	took  int                // which of them was ready
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool
}

// start runs a task of a process on a thread, until it waits or ends.
func (s *Sim) start(p *process, task func()) {
	var t *thread
	if n := len(s.idle); n > 0 {
		t, s.idle = s.idle[n-1], s.idle[:n-1]
	} else {
		t = newThread()
		s.threads = append(s.threads, t)
	}
	t.p, t.task = p, task
	s.resume(t)
}

func newThread() *thread {
	t := new(thread)
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if why := recover(); why != nil && why != left {
				panic(fmt.Sprintf("BUG: on a thread of the simulation: %v\n%s", why, debug.Stack()))
			}
		}()
		t.yield = yield
		for more := true; more; more = yield(struct{}{}) {
			t.task()
			t.task = nil
		}
	})
	return t
}

// left ends what a thread does when the world ends.
const left = "the world has ended"

func (s *Sim) resume(t *thread) {
	s.running = t
	t.next()
	s.running = nil
	if t.task == nil {
		s.idle = append(s.idle, t)
	} else {
		s.parked = append(s.parked, t)
	}
}

// wait is the world's Wait.
func (s *Sim) wait(a, b, c <-chan struct{}) int {
	t := s.running
	if t == nil {
		panic("BUG: sim: the world itself cannot wait")
	}
	t.waits = [3]<-chan struct{}{a, b, c}
	if !s.take(t) && !t.yield(struct{}{}) {
		panic(left)
	}
	return t.took
}

// take receives what a thread waits for, if it is there: if several are, from any of them.
func (s *Sim) take(t *thread) bool {
	n := 0
	for i, c := range t.waits {
		if !isReady(c) {
			continue
		}
		if n++; n == 1 || s.chance(n) {
			t.took = i
		}
	}
	if n == 0 {
		return false
	}
	<-t.waits[t.took]
	t.waits = [3]<-chan struct{}{}
	return true
}

// isReady reports whether a channel has something, or is closed. One that has room is never
// closed.
func isReady(c <-chan struct{}) bool {
	if cap(c) > 0 {
		return len(c) > 0
	}
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// wakeThreads lets those go on that need not wait any more.
func (s *Sim) wakeThreads() {
	s.watched = slices.DeleteFunc(s.watched, func(w *watched) bool {
		if w.f != nil && !w.p.dead && !isReady(w.done) {
			return false
		}
		if f := w.f; f != nil {
			w.f = nil
			s.after(s.soon(), w.p, func() { s.start(w.p, f) })
		}
		return true
	})
	s.parked = slices.DeleteFunc(s.parked, func(t *thread) bool {
		if !t.p.dead && !s.take(t) {
			return false
		}
		s.after(s.soon(), t.p, func() { s.resume(t) })
		return true
	})
}

// watched is a context at whose end a function is called.
type watched struct {
	p    *process
	done <-chan struct{}
	f    func() // nil: it is called, or was not wanted any more
}

// afterFunc is the world's AfterFunc.
func (p *process) afterFunc(ctx context.Context, f func()) func() bool {
	w := &watched{p, ctx.Done(), f}
	p.sim.watched = append(p.sim.watched, w)
	return func() bool {
		wanted := w.f != nil
		w.f = nil
		return wanted
	}
}

// soon is how long a goroutine takes to start, or to go on.
func (s *Sim) soon() time.Duration { return s.between(0, 300*time.Microsecond) }

// timeAfter is the world's After.
func (p *process) timeAfter(d time.Duration) (<-chan struct{}, func() bool) {
	over, stopped := make(chan struct{}), false
	p.sim.after(max(d, 0)+p.sim.between(0, 2*time.Millisecond), p, func() { // a time that is over is over at once
		if !stopped {
			stopped = true
			close(over)
		}
	})
	return over, func() bool {
		was := !stopped
		stopped = true
		return was
	}
}
