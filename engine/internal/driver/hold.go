package driver

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/watchdog"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/wheel"
)

// TimedHold is a hold of the core's with its timer, and the grant that it is of. The shard's
// lock guards it.
type TimedHold struct {
	lock.Hold
	grant *Grant
	timer *holdTimer // nil until it is needed
}

// HoldObserver is who has a lock.Hold: its Handle, which embeds the TimedHold. Its methods are called under
// the shard's lock.
type HoldObserver interface {
	driven() *TimedHold
	// Ended, Lost and CloseDone are the effects of package lock.
	Ended(why lock.Loss)
	Lost(why lock.Loss)
	CloseDone()
	// Confirmed: a renewal was answered.
	Confirmed()
}

func observerOf(h *lock.Hold) HoldObserver { return h.Handle.(HoldObserver) }

// Init sets up the first hold of a grant of that entry.
func (h *TimedHold) Init(observer HoldObserver, t *Grant, r *lock.Entry) {
	h.Handle, h.grant, h.Grant = observer, t, &t.Grant
	t.member.Init(t, resp.Slot(r.Route))
}

// InitBeside sets up another hold of the grant of one.
func (h *TimedHold) InitBeside(observer HoldObserver, other *lock.Hold) {
	h.Handle, h.grant, h.Grant = observer, holdOf(other).grant, other.Grant
}

// Shard is that of the hold's name.
func (h *TimedHold) Shard() *Shard { return ShardOf(h.Entry) }

// holdOf is what drives a hold.
func holdOf(h *lock.Hold) *TimedHold { return observerOf(h).driven() }

// driven implements HoldObserver.
//
//lint:ignore U1000 the holds of package engine, which embed it, have it for HoldObserver
func (h *TimedHold) driven() *TimedHold { return h }

// Owner is the hold's owner on the server.
func (h *TimedHold) Owner() script.Owner { return OwnerOf(h.Entry, h.Kind, h.ID) }

// Look is an error if the hold has ended, by the clock too. It ends no contexts itself.
func (h *TimedHold) Look() (err error) {
	if !h.InTime() {
		h.Shard().do(func(rd *lock.Ready) { err = h.Check(h.Shard().Now(), rd) })
	}
	return err
}

// InTime reports whether the hold's time is not over yet. It takes no lock.
func (h *TimedHold) InTime() bool { return h.Shard().Now() < h.Until() }

// VerifyNow renews the hold at once; the answer tells whether it is there. No lock is held.
func (h *TimedHold) VerifyNow() { h.Shard().Table.Renewer.Now(&h.grant.member) }

// renew gives the grant a place among the renewals, moves that, or ends it.
func (h *TimedHold) renew(when lock.Renewal, now clock.Instant) {
	renewer, m := h.Shard().Table.Renewer, &h.grant.member
	switch when {
	case lock.RenewFirst:
		renewer.JoinFirst(m, now)
	case lock.RenewNext:
		renewer.JoinNext(m, now)
	case lock.RenewSoon:
		renewer.Soon(m)
	case lock.RenewNoMore:
		renewer.Leave(m)
	}
}

func (h *TimedHold) setTimer(at clock.Instant) {
	if h.timer == nil {
		if at == 0 {
			return
		}
		h.timer = &holdTimer{h: h}
		h.timer.timer.Init(h.timer)
	}
	setTimer(h.Shard().Table.Timers, &h.timer.timer, at)
}

// holdTimer wakes a hold that the watchdog does not: a fixed lease, MaxHold, the
// time of a release.
type holdTimer struct {
	timer wheel.Timer
	h     *TimedHold
}

// Fire implements wheel.Task.
func (t *holdTimer) Fire(_ *wheel.Timer, now clock.Instant) { t.h.Wake(now) }

// Wake is called at the instant of the effect HoldTimer.
func (h *TimedHold) Wake(now clock.Instant) {
	h.Shard().do(func(rd *lock.Ready) { h.Fired(now, rd) })
}

// Renewable is its grant as the renewer sees it.
func (h *TimedHold) Renewable() watchdog.Renewable { return h.grant }

// Grant is a grant of the core's with its place among the renewals: a watchdog.Renewable. The shard's lock
// guards it.
type Grant struct {
	lock.Grant
	member watchdog.Member
}

// The methods below implement watchdog.Renewable.

func (t *Grant) Until() clock.Instant { return t.ValidUntil() }
func (t *Grant) Wants() resp.Acks     { return resp.Acks(t.Acks) }
func (t *Grant) Kind() kind.Renewal   { return kind.Kind(t.Grant.Kind).Renewal() }

func (t *Grant) Renewal(now clock.Instant) (call script.Renewal, ok bool) {
	sh := ShardOf(t.Entry)
	var rd lock.Ready
	sh.Lock()
	lease, ok := t.Grant.Renewal(now, &rd)
	if ok {
		call = script.Renewal{Key: t.Entry.Name, Owner: OwnerOf(t.Entry, t.Grant.Kind, t.ID), Lease: lease}
	}
	sh.finish(&rd)
	return call, ok
}

func (t *Grant) Renewed(sent, now clock.Instant, lease time.Duration, acked int) {
	sh := ShardOf(t.Entry)
	var rd lock.Ready
	sh.Lock()
	if t.Grant.Renewed(sent, now, lease, acked, &rd) {
		t.Each(func(h *lock.Hold) { observerOf(h).Confirmed() })
	}
	sh.finish(&rd)
}

func (t *Grant) Gone(code int64) {
	why := lock.RemovedOnServer
	if code == script.WrongType {
		why = lock.KeyOverwritten
	}
	ShardOf(t.Entry).do(func(rd *lock.Ready) { t.Grant.Gone(why, rd) })
}
