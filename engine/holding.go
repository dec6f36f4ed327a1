package engine

import (
	"log/slog"
	"runtime"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/engine/internal/renew"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/wheel"
)

// holding is what the engine has of a hold: the machine's, and its place among the
// renewals. The user has a Hold, which points here. (Two objects, so that a Hold that the
// user dropped can be noticed.) The shard's lock guards its fields.
type holding struct {
	machine.Hold
	sh     *shard
	member renew.Member
	timer  *holdTimer // nil until it is needed
	handle *Hold      // keeps the user's Hold alive until the first renewal
	done   chan struct{}
}

func newHolding(sh *shard, r *machine.Resource, want machine.Acks) *holding {
	h := &holding{sh: sh}
	h.Port, h.handle = h, &Hold{h: h}
	h.member.Init((*subject)(h), resp.Slot(r.Route), resp.Acks(want))
	return h
}

// holdingOf is the engine's side of a hold.
func holdingOf(h *machine.Hold) *holding { return h.Port.(*holding) }

// inner is the machine's side; nil of nil.
func (h *holding) inner() *machine.Hold {
	if h == nil {
		return nil
	}
	return &h.Hold
}

// The methods below implement machine.HoldPort.

func (h *holding) RenewFirst(now clock.Instant) { h.sh.eng.renewer.JoinFirst(&h.member, now) }
func (h *holding) RenewNext(now clock.Instant)  { h.sh.eng.renewer.JoinNext(&h.member, now) }
func (h *holding) RenewSoon()                   { h.sh.eng.renewer.Soon(&h.member) }

func (h *holding) WakeAt(at clock.Instant) {
	if h.timer == nil {
		h.timer = &holdTimer{h: h}
		h.timer.timer.Init(h.timer)
	}
	h.sh.eng.wheel.Schedule(&h.timer.timer, at)
}

func (h *holding) Over() {
	h.sh.eng.renewer.Leave(&h.member)
	if h.timer != nil {
		h.sh.eng.wheel.Cancel(&h.timer.timer)
	}
}

func (h *holding) Ended(why machine.Loss) {
	if why == 0 {
		h.sh.eng.hookReleased(h)
	} else {
		h.sh.eng.hookLost(h, LostReason(why))
	}
	h.handle = nil
}

func (h *holding) Lost(why machine.Loss) { h.sh.eng.logLost(h, LostReason(why)) }

func (h *holding) Told() {
	if h.done != nil {
		close(h.done)
	}
}

// holdTimer wakes a hold that the watchdog does not: a fixed lease, MaxHold, the
// time of a release.
type holdTimer struct {
	timer wheel.Timer
	h     *holding
}

// Fire implements wheel.Task.
func (t *holdTimer) Fire(_ *wheel.Timer, now clock.Instant) {
	h := t.h
	var fx machine.Effects
	h.sh.mu.Lock()
	h.Fired(now, &fx)
	h.sh.mu.Unlock()
	h.sh.eng.run(&fx)
}

// subject is a holding under renewal: a renew.Subject.
type subject holding

func (s *subject) holding() *holding { return (*holding)(s) }

// Until implements renew.Subject.
func (s *subject) Until() clock.Instant { return s.holding().OwnUntil() }

// Renewal implements renew.Subject.
func (s *subject) Renewal(now clock.Instant) (script.Renewal, bool) {
	h := s.holding()
	var fx machine.Effects
	h.sh.mu.Lock()
	lease, ok := h.Hold.Renewal(now, &fx)
	var call script.Renewal
	if ok {
		call = script.Renewal{Key: h.Res.Name, Owner: script.Owner{Engine: h.sh.eng.id, ID: h.ID}, Lease: lease}
	}
	h.sh.mu.Unlock()
	h.sh.eng.run(&fx)
	return call, ok
}

// Renewed implements renew.Subject.
func (s *subject) Renewed(sent, now clock.Instant, lease time.Duration, acked int) {
	h := s.holding()
	var fx machine.Effects
	h.sh.mu.Lock()
	if h.Hold.Renewed(sent, now, lease, acked, &fx) {
		h.watchForLeak()
	}
	h.sh.mu.Unlock()
	h.sh.eng.run(&fx)
}

// Gone implements renew.Subject.
func (s *subject) Gone(code int64) {
	why := machine.GoneOnServer
	if code == script.WrongType {
		why = machine.TakenOnServer
	}
	h := s.holding()
	var fx machine.Effects
	h.sh.mu.Lock()
	h.Hold.Gone(why, &fx)
	h.sh.mu.Unlock()
	h.sh.eng.run(&fx)
}

// look is Hold.Err that never ends contexts itself.
func (h *holding) look() error {
	if h.inTime() {
		return nil
	}
	var fx machine.Effects
	h.sh.mu.Lock()
	err := h.Check(h.sh.Now(), &fx)
	h.sh.mu.Unlock()
	h.sh.eng.run(&fx)
	return err
}

// inTime reports whether the hold's time is not over yet. It takes no lock.
func (h *holding) inTime() bool { return h.sh.Now() < h.Until() }

// lookNow renews the hold at once; the answer tells whether it is there. No lock is held.
func (h *holding) lookNow() { h.sh.eng.renewer.Now(&h.member) }

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
	yes := h.IsLive()
	if yes {
		h.sh.count.Leaked++
	}
	h.sh.mu.Unlock()
	if yes {
		h.sh.eng.log(slog.LevelError, "pawl: a hold was dropped without Unlock; the lock stays held until the engine is closed",
			"lock", reason.Shorten(h.Name))
	}
}
