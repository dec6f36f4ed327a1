package wheel

import (
	"context"
	rpprof "runtime/pprof"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/invariants"
)

var workerLabels = rpprof.WithLabels(context.Background(), rpprof.Labels("role", "wheel-worker"))

// startWorkerLocked starts a worker if there is work and room for one more. Each
// worker starts the next one in turn, so a slow Fire holds up nothing while
// there is room.
func (w *Wheel) startWorkerLocked() {
	if w.mu.closing || w.mu.due.empty() || w.mu.workers >= w.cfg.Workers {
		return
	}
	w.mu.workers++
	w.tasks.Add(1)
	go w.runWork()
}

// work runs due timers until there are none, or a Fire calls Goexit.
func (w *Wheel) work() {
	rpprof.SetGoroutineLabels(workerLabels)
	defer w.endWork()
	for {
		t, at := w.takeDue()
		if t == nil {
			return
		}
		now := w.clock.Now()
		invariants.Check(now >= at, "wheel: a timer fires early")
		w.noteLag(int64(now.Sub(at)))
		t.task.Fire(t, now)
	}
}

// endWork lets another worker go on with what has become due since the last look.
func (w *Wheel) endWork() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.workers--
	w.startWorkerLocked()
	w.tasks.Done()
}

// takeDue takes one timer, or nil: until this moment it can be cancelled or moved.
func (w *Wheel) takeDue() (t *Timer, at clock.Instant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.closing || w.mu.due.empty() {
		return nil, 0
	}
	t = w.mu.due.pop()
	w.mu.armed--
	w.mu.fired++
	w.startWorkerLocked()
	return t, t.at
}

func (w *Wheel) noteLag(lag int64) {
	w.lastLag.Store(lag)
	for {
		old := w.maxLag.Load()
		if lag <= old || w.maxLag.CompareAndSwap(old, lag) {
			return
		}
	}
}
