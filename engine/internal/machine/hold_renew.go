package machine

import (
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// Renewal says for how long the hold is to be renewed, by a command that is sent now. It is
// false for a hold that has ended, or ends here because its time is over.
func (h *Hold) Renewal(now clock.Instant, fx *Effects) (lease time.Duration, ok bool) {
	h.check(now, fx)
	h.boundReleases()
	if h.state != live {
		h.Res.goOnAfter(fx)
		return 0, false
	}
	cfg := h.Res.Port.Config()
	lease = cfg.Lease
	if !h.watched {
		// Only a look: what is left is no more than the key has.
		lease = h.Until().Sub(now)
	} else if x := h.extra; x != nil && x.maxEnd != 0 {
		lease = min(lease, x.maxEnd.Sub(now)+cfg.Margin(lease))
	}
	h.serverUntil = max(h.serverUntil, now.Add(lease))
	return lease, true
}

// Renewed notes that the server has raised the lease, by a command that was sent then. It
// reports whether the watchdog goes on. An acknowledgement that comes after the hold's time
// does not bring it back.
func (h *Hold) Renewed(sent, now clock.Instant, lease time.Duration, acked int, fx *Effects) bool {
	h.check(now, fx)
	h.boundReleases()
	if h.state != live {
		h.Res.goOnAfter(fx)
		return false
	}
	if !h.watched {
		if x := h.extra; x != nil && x.ofQuorum {
			x.there = max(x.there, sent)
		}
		return false
	}
	h.acknowledged(sent, lease)
	h.setAcked(acked)
	h.Res.Port.Counters().Renewed++
	h.Port.RenewNext(now)
	return true
}

// Gone notes that the server does not have the hold any more.
func (h *Hold) Gone(why Loss, fx *Effects) {
	h.boundReleases()
	if h.state == live { // else a release is under way, and found first
		h.Res.lose(h, why, fx)
		h.Res.goOnAfter(fx)
	}
}

// Check ends the hold if its time is over, and returns why it has ended, if it has.
func (h *Hold) Check(now clock.Instant, fx *Effects) error {
	h.check(now, fx)
	if h.Ending != nil {
		h.Res.goOnAfter(fx)
	}
	return h.Ending
}

// goOnAfter goes on with the resource of a hold that may have been lost just now.
// If it ended before that, the resource may be another name's by now, or nobody's.
func (r *Resource) goOnAfter(fx *Effects) {
	if !r.Out {
		r.GoOn(fx)
	}
}
