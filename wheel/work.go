package wheel

import (
	"context"
	"runtime"
	rpprof "runtime/pprof"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/invariants"
)

var workerLabels = rpprof.WithLabels(context.Background(), rpprof.Labels("role", "wheel-worker"))

func defaultWorkers() int { return max(4, runtime.GOMAXPROCS(0)) }

// startWorkerLocked starts a worker if there is work and room for one more. Each
// worker starts the next one in turn, so a slow Fire holds up nothing while
// there is room.
func (w *Wheel) startWorkerLocked() {
	if w.mu.due.empty() || w.mu.workers >= w.cfg.Workers {
		return
	}
	w.mu.workers++
	w.tasks.Add(1)
	go w.runWork()
}

// work runs due timers until there are none.
func (w *Wheel) work() {
	rpprof.SetGoroutineLabels(workerLabels)
	defer w.tasks.Done()
	idle := false
	defer func() {
		if !idle { // a Fire called Goexit
			w.replaceWorker()
		}
	}()
	for {
		t, at := w.takeDue()
		if t == nil {
			idle = true
			return
		}
		now := w.clock.Now()
		invariants.Check(now >= at, "wheel: a timer fires early")
		w.noteLag(int64(now.Sub(at)))
		t.task.Fire(t, now)
	}
}

// takeDue takes one timer: until this moment it can be cancelled or moved. With
// none left it takes the calling worker off the books and returns nil.
func (w *Wheel) takeDue() (t *Timer, at clock.Instant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.closing || w.mu.due.empty() {
		w.mu.workers--
		return nil, 0
	}
	t = w.mu.due.pop()
	w.mu.armed--
	w.mu.fired++
	w.startWorkerLocked()
	return t, t.at
}

func (w *Wheel) replaceWorker() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.workers--
	if !w.mu.closing {
		w.startWorkerLocked()
	}
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
