package wheel

import "github.com/pawl-lock/pawl/internal/clock"

// Task is what a Timer runs.
type Task interface {
	// Fire runs on one of the wheel's workers, never before the deadline, no lock
	// of the wheel held. It must not block: it would keep one of the few workers.
	// It may Schedule t again. t tells which of the owner's timers fired.
	Fire(t *Timer, now clock.Instant)
}

// Timer is one deadline, embedded by value in what it belongs to (40 bytes).
// Init it once; after that it is used through one Wheel only and not copied.
type Timer struct {
	_    noCopy
	task Task
	at   clock.Instant // guarded by Wheel.mu, like the links

	// The neighbours in the one list the timer is in; nil while it is not armed.
	next, prev *Timer
}

// Init sets what t runs. It is called once, before the first Schedule.
func (t *Timer) Init(task Task) { t.task = task }

// Fire runs the task. It is for what takes the place of a Wheel, such as a simulation.
func (t *Timer) Fire(now clock.Instant) { t.task.Fire(t, now) }

// noCopy makes go vet report copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// timerList is a ring around a root, so that a timer leaves it without knowing
// which list it is in. It must be reset before use.
type timerList struct{ root Timer }

func (l *timerList) reset()      { l.root.next, l.root.prev = &l.root, &l.root }
func (l *timerList) empty() bool { return l.root.next == &l.root }

func (l *timerList) push(t *Timer) {
	last := l.root.prev
	t.prev, t.next = last, &l.root
	last.next, l.root.prev = t, t
}

// pop takes out the first timer. The list must not be empty.
func (l *timerList) pop() *Timer {
	t := l.root.next
	t.unlink()
	return t
}

// moveTo appends all of l to dst, whatever their number, and leaves l empty.
func (l *timerList) moveTo(dst *timerList) {
	if l.empty() {
		return
	}
	first, last, end := l.root.next, l.root.prev, dst.root.prev
	end.next, first.prev = first, end
	last.next, dst.root.prev = &dst.root, last
	l.reset()
}

func (t *Timer) linked() bool { return t.next != nil }

func (t *Timer) unlink() {
	t.prev.next, t.next.prev = t.next, t.prev
	t.next, t.prev = nil, nil
}
