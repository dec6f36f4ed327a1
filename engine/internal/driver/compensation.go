package driver

import (
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/wheel"
)

// compensation is a lock.Compensation with its timer.
type compensation struct {
	lock.Compensation
	sh    *Shard
	timer wheel.Timer
}

func newCompensation(sh *Shard) *compensation {
	d := &compensation{sh: sh}
	d.Port = d
	d.timer.Init(d)
	return d
}

// SetTimer implements lock.Timer.
func (d *compensation) SetTimer(at clock.Instant) { setTimer(d.sh.Table.Timers, &d.timer, at) }

// Fire implements wheel.Task.
func (d *compensation) Fire(_ *wheel.Timer, now clock.Instant) {
	d.sh.do(func(rd *lock.Ready) { d.Fired(now, rd) })
}
