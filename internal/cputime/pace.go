// Package cputime is for tests that measure time on machines that have little of it.
//
// A process that shares its processors with others is sometimes ready to run and does not
// get to. That time says nothing about the code. So a test that bounds how long something
// may take counts only the time that its process could use (Mark.Elapsed, WithTimeout).
// And a test whose locks are rightly lost while the process does not run asks for an
// attempt during which it runs (Steady). On a quiet machine neither changes anything.
//
// It keeps a timer running for as long as the process lives; only tests import it.
package cputime

import (
	"context"
	"sync"
	"time"
)

const (
	// period is how often the timer wants to run.
	period = 10 * time.Millisecond
	// noise is how late it may be on a machine that does nothing else.
	noise = 2 * time.Millisecond
)

// meter sums up by how much the timer is late. Invariants:
//
//  1. One callback runs at a time; it alone moves due.
//  2. Held never falls: what is overdue at a look is counted when the timer runs.
type meter struct {
	mu struct {
		sync.Mutex
		due      time.Time // when the timer wants to run next
		held     time.Duration
		watchers map[*watcher]struct{}
	}
	timer *time.Timer
}

// watcher is told the worst delay while it watches.
type watcher struct{ worst time.Duration }

var process = newMeter()

// newMeter starts when the program does: in a bubble of testing/synctest the timer
// would be the bubble's.
func newMeter() *meter {
	m := new(meter)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.watchers = make(map[*watcher]struct{})
	m.mu.due = time.Now().Add(period)
	m.timer = time.AfterFunc(period, m.tick)
	return m
}

func (m *meter) tick() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	late := m.overdueLocked(now)
	m.mu.held += late
	for w := range m.mu.watchers {
		w.worst = max(w.worst, late)
	}
	m.mu.due = now.Add(period)
	m.timer.Reset(period)
}

func (m *meter) overdueLocked(now time.Time) time.Duration {
	if late := now.Sub(m.mu.due); late > noise {
		return late
	}
	return 0
}

// look returns the time, and how long the process has been held up until then.
func (m *meter) look() (now time.Time, held time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now = time.Now()
	return now, m.mu.held + m.overdueLocked(now)
}

func (m *meter) watch() *watcher {
	w := new(watcher)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.watchers[w] = struct{}{}
	return w
}

// unwatch returns the worst delay since watch.
func (m *meter) unwatch(w *watcher) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mu.watchers, w)
	return max(w.worst, m.overdueLocked(time.Now()))
}

// Mark is an instant to measure from.
type Mark struct {
	at   time.Time
	held time.Duration
}

// Now marks this instant.
func Now() Mark {
	at, held := process.look()
	return Mark{at, held}
}

// Elapsed returns how much time has passed since the mark of which this process could
// use every moment. It is never more than what a clock says.
func (m Mark) Elapsed() time.Duration {
	at, held := process.look()
	return at.Sub(m.at) - (held - m.held)
}

// WithTimeout is context.WithTimeout by Mark.Elapsed. The context has no deadline that
// could be asked for, and its cause is context.DeadlineExceeded.
func WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	began := Now()
	var timer *time.Timer
	armed := make(chan struct{})
	timer = time.AfterFunc(d, func() {
		<-armed
		if left := d - began.Elapsed(); left > 0 {
			timer.Reset(left)
			return
		}
		cancel(context.DeadlineExceeded)
	})
	close(armed)
	return ctx, func() {
		timer.Stop()
		cancel(context.Canceled)
	}
}
