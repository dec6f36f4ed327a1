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

// The methods below implement lock.CompensationPort.

func (d *compensation) WakeAt(at clock.Instant) { d.sh.Table.Timers.Schedule(&d.timer, at) }
func (d *compensation) Over()                   { d.sh.Table.Timers.Cancel(&d.timer) }

// Fire implements wheel.Task.
func (d *compensation) Fire(_ *wheel.Timer, now clock.Instant) {
	d.sh.do(func(rd *lock.Ready) { d.Fired(now, rd) })
}
