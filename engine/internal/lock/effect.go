package lock

import "github.com/pawl-lock/pawl/internal/clock"

// Effect is one thing that a transition has the driver do before it gives the shard's lock back. It
// neither blocks nor calls back. The effects of all transitions under one hold of the lock are one list, in
// their order: see Shard.Effects. What may block, send or call a user is in a Ready, and comes after the lock.
//
// Of the fields, only those that a kind names are set.
type Effect struct {
	Kind   EffectKind
	Lock   uint8 // the kind of lock
	Loss   Loss
	When   Renewal
	Server ServerID

	Entry        *Entry
	Hold         *Hold
	Request      *Request
	Subscription *Subscription
	Compensation *Compensation
	Extend       *Extend

	ID      int64 // an owner's
	Behind  int   // how many behind Request, by Request.Next, have the same
	At, End clock.Instant
	Err     error
}

// EffectKind is what is to be done.
type EffectKind uint8

// The kinds. A timer is set to At instead of any other instant, or never fires if that is 0.
const (
	HoldTimer         EffectKind = iota // Hold, At: it calls Fired
	SubscriptionTimer                   // Subscription, At: it calls AlarmFired
	CompensationTimer                   // Compensation, At: it calls Fired
	Pause                               // Entry, At: PauseOver is called then
	GiveUpAt                            // Request, At: it is cancelled then, unless it has ended or has a deadline
	Renew                               // Hold, When, At (now): the place of its grant among the renewals

	Listen           // Subscription, Lock, ID: subscribe to the channel of the name, or of the owner if the kind queues owners
	Unlisten         // Subscription: give that up
	ListenForCalls   // Subscription, Lock: subscribe to the channel on which this engine is called to the front of the queue
	UnlistenForCalls // Subscription: give that up

	Verdict      // Request, Hold, Err, Behind: these have their verdict; their deadlines end, and Ready has them next
	ExtendResult // Extend: it has its verdict
	Ended        // Hold, Loss: it is not live any more; it was released (0) or lost. If it IsAnnounced, CloseDone is due, too
	Lost         // Hold, Loss: it was lost, and not only with its outer hold
	CloseDone    // Hold: its contexts have ended, and everybody may know

	Released       // Entry, Lock, Server, ID, At, End: that server has answered the release of an owner, whose MinHold ends at End
	MessageRefused // Entry: the server has refused the message of a release
	ReleaseRefused // Err: the server has refused a release for good
	ReleaseDelayed // Err: and for now
	Unstalled      // Entry: recovery lists it, and it has nothing to send any more
	Removed        // Entry: nothing is left of it
)

// Renewal is when a grant is renewed next.
type Renewal uint8

// The choices.
const (
	RenewFirst  Renewal = iota // for the first time
	RenewNext                  // a third of a lease later
	RenewSoon                  // now, together with others
	RenewNoMore                // its hold is over
)

// maxEffects bounds the room that a shard keeps for its effects.
const maxEffects = 64

// Effects are what the transitions since the lock was taken have the driver do before it gives the lock back. It
// does them in this order, and then calls Applied.
func (s *Shard) Effects() []Effect { return s.effects }

// Applied is called when the effects were done.
func (s *Shard) Applied() {
	for i := range s.effects {
		if e := &s.effects[i]; e.Kind == Removed {
			s.recycle(e.Entry)
		}
	}
	if cap(s.effects) > maxEffects {
		s.effects = nil
		return
	}
	clear(s.effects)
	s.effects = s.effects[:0]
}

// emit adds an effect. The caller sets its fields in place, before it emits another, which may move it. That
// spares a copy of them all, and with it the write barriers of the pointers that are not set.
func (s *Shard) emit(kind EffectKind) *Effect {
	n := len(s.effects)
	if n == cap(s.effects) {
		s.effects = append(s.effects, Effect{})
	}
	s.effects = s.effects[:n+1]
	e := &s.effects[n]
	e.Kind = kind
	return e
}

func (h *Hold) setTimer(at clock.Instant) {
	e := h.Entry.Shard.emit(HoldTimer)
	e.Hold, e.At = h, at
}

func (w *Subscription) setTimer(at clock.Instant) {
	e := w.res.Shard.emit(SubscriptionTimer)
	e.Subscription, e.At = w, at
}

func (d *Compensation) setTimer(at clock.Instant) {
	e := d.Entry.Shard.emit(CompensationTimer)
	e.Compensation, e.At = d, at
}

func (h *Hold) renew(when Renewal, now clock.Instant) {
	e := h.Entry.Shard.emit(Renew)
	e.Hold, e.When, e.At = h, when, now
}

// effect is Ended, Lost or CloseDone.
func (h *Hold) effect(kind EffectKind, why Loss) {
	e := h.Entry.Shard.emit(kind)
	e.Hold, e.Loss = h, why
}

func (w *Subscription) effect(kind EffectKind) {
	e := w.res.Shard.emit(kind)
	e.Subscription, e.Lock = w, w.kind
}

// noteRefusal tells that the server has refused a release, for good or for now.
func (r *Entry) noteRefusal(o *Outcome) {
	kind := ReleaseRefused
	if o.Result == RetryLater {
		kind = ReleaseDelayed
	}
	r.Shard.emit(kind).Err = o.Err
}
