package engine

import (
	"log/slog"
	"runtime"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/clock"
)

// The methods below make a holding a renew.Subject.

// Until implements renew.Subject.
func (h *holding) Until() clock.Instant { return clock.Instant(h.validUntil.Load()) }

// Renewal implements renew.Subject.
func (h *holding) Renewal(now clock.Instant) (script.Renewal, bool) {
	var fx effects
	h.sh.mu.Lock()
	h.check(now, &fx)
	h.boundReleases()
	if h.state != live {
		h.res.goOnAfter(&fx)
		h.sh.mu.Unlock()
		fx.run(h.eng)
		return script.Renewal{}, false
	}
	lease := h.eng.cfg.Lease
	if !h.watched {
		// Only a look: what is left is no more than the key has.
		lease = h.until().Sub(now)
	} else if x := h.extra; x != nil && x.maxEnd != 0 {
		lease = min(lease, x.maxEnd.Sub(now)+h.eng.margin(lease))
	}
	h.serverUntil = max(h.serverUntil, now.Add(lease))
	key := h.res.name
	h.sh.mu.Unlock()
	return script.Renewal{Key: key, Owner: script.Owner{Engine: h.eng.id, ID: h.id}, Lease: lease}, true
}

// Renewed implements renew.Subject. An acknowledgement that comes after the
// hold's time does not bring it back.
func (h *holding) Renewed(sent, now clock.Instant, lease time.Duration, acked int) {
	var fx effects
	h.sh.mu.Lock()
	h.check(now, &fx)
	h.boundReleases()
	if h.state != live {
		h.res.goOnAfter(&fx)
		h.sh.mu.Unlock()
		fx.run(h.eng)
		return
	}
	if h.watched {
		h.acknowledged(sent, lease)
		h.setAcked(acked)
		h.sh.count.renewed++
		h.watchForLeak()
		h.eng.renewer.JoinNext(&h.member, now)
	} else if x := h.extra; x != nil && x.ofQuorum {
		x.there = max(x.there, sent)
	}
	h.sh.mu.Unlock()
}

// Gone implements renew.Subject.
func (h *holding) Gone(code int64) {
	reason := GoneOnServer
	if code == script.WrongType {
		reason = TakenOnServer
	}
	var fx effects
	h.sh.mu.Lock()
	h.boundReleases()
	if h.state == live { // else a release is under way, and found first
		h.res.lose(h, reason, &fx)
		h.res.goOnAfter(&fx)
	}
	h.sh.mu.Unlock()
	fx.run(h.eng)
}

// goOnAfter goes on with the resource of a hold that may have been lost just now.
// If it ended before that, the resource may be another name's by now, or nobody's.
func (r *resource) goOnAfter(fx *effects) {
	if r.known() {
		r.next(fx)
		r.settled()
	}
}

// watchForLeak lets go of the user's Hold at its first renewal: if nobody else has
// it, the garbage collector will tell. Holds that are over before cost nothing.
func (h *holding) watchForLeak() {
	if h.handle == nil {
		return
	}
	runtime.AddCleanup(h.handle, (*holding).leaked, h)
	h.handle = nil
}

// leaked runs when the user's Hold is garbage. If the hold is live nobody can
// unlock it any more. It is counted and reported, never released: the work under
// it may still be going on.
func (h *holding) leaked() {
	h.sh.mu.Lock()
	yes := h.state == live
	if yes {
		h.sh.count.leaked++
	}
	h.sh.mu.Unlock()
	if yes {
		h.eng.log(slog.LevelError, "pawl: a hold was dropped without Unlock; the lock stays held until the engine is closed",
			"lock", reason.Shorten(h.name))
	}
}
