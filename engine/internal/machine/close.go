package machine

import "github.com/pawl-lock/pawl/engine/internal/reason"

// StopWaiting ends every request that waits, and what would only keep a name in the table
// that nobody uses any more: a subscription that lingers, debts that are idle.
func (r *Resource) StopWaiting(fx *Effects) {
	r.wait.stopLingering()
	for d := r.debts; d != nil; {
		next := d.next
		if d.idle() {
			r.forgive(d)
		}
		d = next
	}
	for h := r.hold; h != nil; h = h.child {
		for h.pending() {
			a, _ := h.extra.children.Front()
			a.fail(reason.ErrClosed, fx)
		}
	}
	r.failAll(fx)
	r.GoOn(fx)
}

func (r *Resource) failAll(fx *Effects) {
	for r.tries.Len() > 0 {
		a, _ := r.tries.Front()
		a.fail(reason.ErrClosed, fx)
	}
	for r.waiters.Len() > 0 {
		a, _ := r.waiters.Front()
		a.fail(reason.ErrClosed, fx)
	}
}

// EndHold tells the holder, and makes a debt of what it held.
func (r *Resource) EndHold(fx *Effects) { r.LoseHold(EngineClosed, fx) }

// LoseHold is EndHold for another reason.
func (r *Resource) LoseHold(why Loss, fx *Effects) {
	if r.hold != nil {
		r.lose(r.hold, why, fx)
	}
	r.GoOn(fx)
}

// Drop ends all that is left: nothing will be sent any more.
func (r *Resource) Drop(fx *Effects) {
	r.drop(fx)
	r.GoOn(fx)
}

// shut ends what a command belonged to: the client is closed.
func (r *Resource) shut(c *Command, fx *Effects) {
	if a := c.req; a != nil {
		a.fail(reason.ErrClosed, fx)
	}
	r.drop(fx)
}

func (r *Resource) drop(fx *Effects) {
	r.withdraw()
	r.setFree()
	r.failAll(fx)
	if h := r.hold; h != nil {
		if h.state == live {
			r.lose(h, EngineClosed, fx)
		} else {
			h.released(h.about(reason.Because(reason.ErrOutcomeUnknown, reason.ErrClosed)), fx)
		}
	}
	for r.debts != nil {
		r.forgive(r.debts)
	}
}
