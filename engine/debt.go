package engine

import (
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/wheel"
)

// debt is an owner that may stand in the lock's hash although nobody here holds
// the lock: a grant that nobody wanted, a hold that was lost, an acquire whose
// reply never came. It is paid by release(owner), which is harmless however often
// it is sent, and until it is paid the name's other commands queue behind it.
//
// certain debts are paid by the first answer. A doubtful one is a burned id: the
// bytes of its acquire may still sit in the server's socket buffer and be executed
// after the first release:
//
//	engine                        server
//	acquire(id) on connection 1   (not read yet)
//	connection 1 dies
//	release(id) on connection 2   -> nothing there
//	                              reads connection 1: grants id to nobody
//	release(id) again, 1 s later  -> released
//
// So it is paid at once, after a second, and after one lease; a phantom hold lives
// a second at most.
type debt struct {
	next  *debt
	res   *resource
	sh    *shard
	id    int64
	grade grade
	due   bool // to be sent now
	until clock.Instant
	lease time.Duration
	timer wheel.Timer
}

// grade says how a debt is paid.
type grade uint8

const (
	certain  grade = iota // the next answered release pays it
	again                 // once more after a lease
	doubtful              // once more after a second, then after a lease
)

// owe notes a debt. o.sent is when the command that took the lock was sent, at the
// latest.
func (r *resource) owe(id int64, g grade, lease time.Duration, o outcome) {
	d := &debt{res: r, sh: r.sh, id: id, grade: g, due: true, lease: lease}
	d.live(max(o.sent, o.now))
	d.timer.Init(d)
	d.next, r.debts = r.debts, d
	r.sh.count.compensations++
	if g == doubtful {
		r.sh.count.burned++
	}
	r.sh.eng.wheel.Schedule(&d.timer, d.until)
}

// live notes that the owner may stand on the server from then on for a lease.
func (d *debt) live(at clock.Instant) {
	d.until = max(d.until, at.Add(d.lease+d.lease/2+2*time.Second))
}

// settleDebt chooses a debt that is due.
func (r *resource) settleDebt() bool {
	for d := r.debts; d != nil; d = d.next {
		if d.due {
			r.sendSettle(d)
			return true
		}
	}
	return false
}

// settleReplied goes on after the reply of a release that pays a debt.
func (r *resource) settleReplied(c *command, o outcome) {
	d := c.debt
	if d == nil || o.verdict == unknown || o.verdict == busy {
		return // still due
	}
	// Answered, whatever the answer: the server has dealt with this owner. (An
	// error that is no refusal will not change by asking again.)
	d.due = false
	d.live(o.now)
	switch {
	case d.grade == certain || r.sh.eng.closing.Load():
		r.forgive(d)
	case d.grade == doubtful:
		d.grade = again
		r.sh.eng.wheel.Schedule(&d.timer, o.now.Add(time.Second))
	case d.grade == again:
		d.grade = certain
		r.sh.eng.wheel.Schedule(&d.timer, o.now.Add(d.lease))
	}
}

// forgive takes a debt out.
func (r *resource) forgive(d *debt) {
	r.sh.eng.wheel.Cancel(&d.timer)
	if r.cmd.debt == d {
		r.cmd.debt = nil
	}
	for p := &r.debts; *p != nil; p = &(*p).next {
		if *p == d {
			*p, d.next, d.res = d.next, nil, nil
			return
		}
	}
}

// Fire implements wheel.Task: the debt is to be paid once more, or it is so old
// that the server has forgotten the owner by itself.
func (d *debt) Fire(_ *wheel.Timer, now clock.Instant) {
	var fx effects
	d.sh.mu.Lock()
	r := d.res
	if r == nil {
		d.sh.mu.Unlock()
		return
	}
	switch {
	case d.due && d.grade != certain:
		// Nobody could be asked all that time. Nor has anybody said that the acquire will
		// not be executed: its bytes may arrive when the network is back.
		r.sh.eng.wheel.Schedule(&d.timer, now.Add(d.lease+2*time.Second))
	case d.due || now >= d.until.Add(d.lease):
		r.forgive(d)
	default:
		d.due = true
		r.sh.eng.wheel.Schedule(&d.timer, now.Add(d.lease+2*time.Second))
	}
	r.next(&fx)
	r.settled()
	d.sh.mu.Unlock()
	fx.run(r.sh.eng)
}
