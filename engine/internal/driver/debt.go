package driver

import (
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/wheel"
)

// debt is a lock.Debt with its timer.
type debt struct {
	lock.Debt
	sh    *Shard
	timer wheel.Timer
}

func newDebt(sh *Shard) *debt {
	d := &debt{sh: sh}
	d.Port = d
	d.timer.Init(d)
	return d
}

// The methods below implement lock.DebtPort.

func (d *debt) WakeAt(at clock.Instant) { d.sh.Table.Timers.Schedule(&d.timer, at) }
func (d *debt) Over()                   { d.sh.Table.Timers.Cancel(&d.timer) }

// Fire implements wheel.Task.
func (d *debt) Fire(_ *wheel.Timer, now clock.Instant) {
	var fx lock.Effects
	d.sh.mu.Lock()
	d.Fired(now, &fx)
	d.sh.mu.Unlock()
	d.sh.Table.Run(&fx)
}
