package driver

import (
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/wheel"
)

// compensationTimer is the timer of a lock.Compensation: its Handle.
type compensationTimer struct {
	timer wheel.Timer
	d     *lock.Compensation
	sh    *Shard
}

func (s *Shard) setCompensationTimer(d *lock.Compensation, at clock.Instant) {
	if d.Handle == nil {
		t := &compensationTimer{d: d, sh: s}
		t.timer.Init(t)
		d.Handle = t
	}
	setTimer(s.Table.Timers, &d.Handle.(*compensationTimer).timer, at)
}

// Fire implements wheel.Task.
func (t *compensationTimer) Fire(_ *wheel.Timer, now clock.Instant) {
	t.sh.do(func(rd *lock.Ready) { t.d.Fired(now, rd) })
}
