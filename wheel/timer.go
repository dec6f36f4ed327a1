package wheel

import "github.com/pawl-lock/pawl/internal/clock"

// Task is what a Timer runs.
type Task interface {
	// Fire runs on one of the wheel's workers, never before the deadline, no lock
	// of the wheel held. It must not block: timers due together share a worker.
	// t tells which of the owner's timers fired.
	Fire(t *Timer, now clock.Instant)
}
