package driver

import (
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/watchdog"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/wheel"
)

// Holding is a hold of the core's with its timer, and the grant that it is of. The shard's
// lock guards it.
type Holding struct {
	lock.Hold
	grant *Grant
	timer *holdTimer // nil until it is needed
}

// Hold is the port of a hold, of which Holding has the half that renews and wakes it.
type Hold interface {
	lock.HoldPort
	driven() *Holding
	// Confirmed: a renewal was answered. It is called under the shard's lock.
	Confirmed()
}

// Init sets up the first hold of a grant of that entry.
func (h *Holding) Init(port Hold, t *Grant, r *lock.Entry) {
	h.Port, h.grant, h.Grant = port, t, &t.Grant
	t.member.Init((*subject)(t), resp.Slot(r.Route))
}

// InitBeside sets up another hold of the grant of one.
func (h *Holding) InitBeside(port Hold, other *lock.Hold) {
	h.Port, h.grant, h.Grant = port, holdingOf(other).grant, other.Grant
}

// Shard is that of the hold's name.
func (h *Holding) Shard() *Shard { return ShardOf(h.Entry) }

// holdingOf is what drives a hold.
func holdingOf(h *lock.Hold) *Holding { return h.Port.(Hold).driven() }

// driven implements Hold.
//
//lint:ignore U1000 the holds of package engine, which embed it, have it for Hold
func (h *Holding) driven() *Holding { return h }

// Owner is the hold's owner on the server.
func (h *Holding) Owner() script.Owner { return OwnerOf(h.Entry, h.Kind, h.ID) }

// Look is an error if the hold has ended, by the clock too. It ends no contexts itself.
func (h *Holding) Look() error {
	if h.InTime() {
		return nil
	}
	var rd lock.Ready
	h.Shard().Lock()
	err := h.Check(h.Shard().Now(), &rd)
	h.Shard().Unlock()
	h.Shard().Table.Apply(&rd)
	return err
}

// InTime reports whether the hold's time is not over yet. It takes no lock.
func (h *Holding) InTime() bool { return h.Shard().Now() < h.Until() }

// LookNow renews the hold at once; the answer tells whether it is there. No lock is held.
func (h *Holding) LookNow() { h.Shard().Table.Renewer.Now(&h.grant.member) }

// The methods below are the half of lock.HoldPort that renews and wakes it.

func (h *Holding) RenewFirst(now clock.Instant) {
	h.Shard().Table.Renewer.JoinFirst(&h.grant.member, now)
}
func (h *Holding) RenewNext(now clock.Instant) {
	h.Shard().Table.Renewer.JoinNext(&h.grant.member, now)
}
func (h *Holding) RenewSoon() { h.Shard().Table.Renewer.Soon(&h.grant.member) }

func (h *Holding) WakeAt(at clock.Instant) {
	if h.timer == nil {
		h.timer = &holdTimer{h: h}
		h.timer.timer.Init(h.timer)
	}
	h.Shard().Table.Timers.Schedule(&h.timer.timer, at)
}

func (h *Holding) GrantOver() { h.Shard().Table.Renewer.Leave(&h.grant.member) }

func (h *Holding) Over() {
	if h.timer != nil {
		h.Shard().Table.Timers.Cancel(&h.timer.timer)
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
	var rd lock.Ready
	h.Shard().Lock()
	h.Fired(now, &rd)
	h.Shard().Unlock()
	h.Shard().Table.Apply(&rd)
}

// Subject is its grant as the renewer sees it.
func (h *Holding) Subject() watchdog.Subject { return (*subject)(h.grant) }
