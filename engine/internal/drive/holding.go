package drive

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/renew"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/wheel"
)

// Holding is a hold of the machine's with its place among the renewals and its timer. The
// shard's lock guards it.
type Holding struct {
	machine.Hold
	Shard  *Shard
	member renew.Member
	timer  *holdTimer // nil until it is needed
}

// Hold is the port of a hold, of which Holding has the half that renews and wakes it.
type Hold interface {
	machine.HoldPort
	driven() *Holding
	// Confirmed: a renewal was answered. It is called under the shard's lock.
	Confirmed()
}

// Init sets up the hold of a resource.
func (h *Holding) Init(port Hold, s *Shard, r *machine.Resource, want machine.Acks) {
	h.Port, h.Shard = port, s
	h.member.Init(h.Subject(), resp.Slot(r.Route), resp.Acks(want))
}

// holdingOf is what drives a hold.
func holdingOf(h *machine.Hold) *Holding { return h.Port.(Hold).driven() }

// driven implements Hold.
//
//lint:ignore U1000 the holds of package engine, which embed it, have it for Hold
func (h *Holding) driven() *Holding { return h }

// Owner is the hold's owner on the server. That of a re-entry is its root's.
func (h *Holding) Owner() script.Owner { return OwnerOf(h.Res, h.Root().ID) }

// Look is an error if the hold has ended, by the clock too. It ends no contexts itself.
func (h *Holding) Look() error {
	if h.InTime() {
		return nil
	}
	var fx machine.Effects
	h.Shard.Lock()
	err := h.Check(h.Shard.Now(), &fx)
	h.Shard.Unlock()
	h.Shard.Table.Run(&fx)
	return err
}

// InTime reports whether the hold's time is not over yet. It takes no lock.
func (h *Holding) InTime() bool { return h.Shard.Now() < h.Until() }

// LookNow renews the hold at once; the answer tells whether it is there. No lock is held.
func (h *Holding) LookNow() { h.Shard.Table.Renewer.Now(&h.member) }

// The methods below are the half of machine.HoldPort that renews and wakes it.

func (h *Holding) RenewFirst(now clock.Instant) { h.Shard.Table.Renewer.JoinFirst(&h.member, now) }
func (h *Holding) RenewNext(now clock.Instant)  { h.Shard.Table.Renewer.JoinNext(&h.member, now) }
func (h *Holding) RenewSoon()                   { h.Shard.Table.Renewer.Soon(&h.member) }

func (h *Holding) WakeAt(at clock.Instant) {
	if h.timer == nil {
		h.timer = &holdTimer{h: h}
		h.timer.timer.Init(h.timer)
	}
	h.Shard.Table.Timers.Schedule(&h.timer.timer, at)
}

func (h *Holding) Over() {
	h.Shard.Table.Renewer.Leave(&h.member)
	if h.timer != nil {
		h.Shard.Table.Timers.Cancel(&h.timer.timer)
	}
}

// holdTimer wakes a hold that the watchdog does not: a fixed lease, MaxHold, the
// time of a release.
type holdTimer struct {
	timer wheel.Timer
	h     *Holding
}

// Fire implements wheel.Task.
func (t *holdTimer) Fire(_ *wheel.Timer, now clock.Instant) { t.h.Wake(now) }

// Wake is called at the instant of WakeAt.
func (h *Holding) Wake(now clock.Instant) {
	var fx machine.Effects
	h.Shard.Lock()
	h.Fired(now, &fx)
	h.Shard.Unlock()
	h.Shard.Table.Run(&fx)
}

// subject is a holding under renewal: a renew.Subject.
type subject Holding

// Subject is the hold as its renewer sees it.
func (h *Holding) Subject() renew.Subject { return (*subject)(h) }

func (s *subject) holding() *Holding { return (*Holding)(s) }

// Until implements renew.Subject.
func (s *subject) Until() clock.Instant { return s.holding().OwnUntil() }

// Renewal implements renew.Subject.
func (s *subject) Renewal(now clock.Instant) (script.Renewal, bool) {
	h := s.holding()
	var fx machine.Effects
	h.Shard.Lock()
	lease, ok := h.Hold.Renewal(now, &fx)
	var call script.Renewal
	if ok {
		call = script.Renewal{Key: h.Res.Name, Owner: OwnerOf(h.Res, h.ID), Lease: lease}
	}
	h.Shard.Unlock()
	h.Shard.Table.Run(&fx)
	return call, ok
}

// Renewed implements renew.Subject.
func (s *subject) Renewed(sent, now clock.Instant, lease time.Duration, acked int) {
	h := s.holding()
	var fx machine.Effects
	h.Shard.Lock()
	if h.Hold.Renewed(sent, now, lease, acked, &fx) {
		h.Port.(Hold).Confirmed()
	}
	h.Shard.Unlock()
	h.Shard.Table.Run(&fx)
}

// Gone implements renew.Subject.
func (s *subject) Gone(code int64) {
	why := machine.GoneOnServer
	if code == script.WrongType {
		why = machine.TakenOnServer
	}
	h := s.holding()
	var fx machine.Effects
	h.Shard.Lock()
	h.Hold.Gone(why, &fx)
	h.Shard.Unlock()
	h.Shard.Table.Run(&fx)
}
