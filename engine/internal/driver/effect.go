package driver

import (
	"github.com/pawl-lock/pawl/engine/internal/env"
	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/wheel"
)

// Caller is who has a lock.Request: its Handle.
type Caller interface {
	// Its holds have a HoldObserver as their Handle.
	lock.Caller
	// driven is what drives it, OnResult its verdict: a hold, or why there is none. They are called under the
	// shard's lock.
	driven() *Request
	OnResult(h *lock.Hold, why error)
	// Deliver follows, without the lock.
	Deliver()
}

// Unlocker is who has a lock.Unlock: its Handle. Deliver is called without the lock.
type Unlocker interface{ Deliver() }

// apply does an effect. The caller holds the lock.
func (s *Shard) apply(e *lock.Effect) {
	t := s.Table
	switch e.Kind {
	case lock.HoldTimer:
		holdOf(e.Hold).setTimer(e.At)
	case lock.SubscriptionTimer:
		setTimer(t.Timers, &subscriptionOf(e).alarm, e.At)
	case lock.CompensationTimer:
		s.setCompensationTimer(e.Compensation, e.At)
	case lock.Pause:
		p := &pauseTimer{entry: e.Entry, sh: s}
		p.timer.Init(p)
		t.Timers.Schedule(&p.timer, e.At)
	case lock.GiveUpAt:
		if a := e.Request; !a.Ended() && a.More().Deadline == nil {
			a.Handle.(Caller).driven().GiveUpAt(e.At)
		}
	case lock.Renew:
		holdOf(e.Hold).renew(e.When, e.At)

	case lock.Listen:
		subscriptionOf(e).listen(kind.Kind(e.Lock), e.ID)
	case lock.Unlisten:
		t.Client.Unsubscribe(&subscriptionOf(e).channel)
	case lock.ListenForCalls:
		subscriptionOf(e).listenForCalls(kind.Kind(e.Lock))
	case lock.UnlistenForCalls:
		t.Client.Unsubscribe(&subscriptionOf(e).calls.channel)

	case lock.Verdict:
		a := e.Request
		for tell(a, e); e.Behind > 0; e.Behind-- {
			a = a.Next()
			tell(a, e)
		}
	case lock.ExtendResult:
		close(e.Extend.Handle.(*Extension).done)
	case lock.Ended:
		o := observerOf(e.Hold)
		if o.Ended(e.Loss); e.Hold.IsAnnounced() {
			o.CloseDone()
		}
	case lock.Lost:
		observerOf(e.Hold).Lost(e.Loss)
	case lock.CloseDone:
		observerOf(e.Hold).CloseDone()

	case lock.Released:
		t.Recovery.Released(e.Entry, kind.Kind(e.Lock), e.Server, e.ID, e.At, e.End)
	case lock.MessageRefused:
		t.Engine.NotPublished(e.Entry.Name)
	case lock.ReleaseRefused, lock.ReleaseDelayed:
		t.noteRefusal(e.Err, e.Kind == lock.ReleaseRefused)
	case lock.Unstalled:
		t.Recovery.Drop((*entry)(e.Entry))
	case lock.Removed:
		s.emptied()
	}
}

// tell gives a request its verdict.
func tell(a *lock.Request, verdict *lock.Effect) {
	endLimits(a.Extra())
	a.Handle.(Caller).OnResult(verdict.Hold, verdict.Err)
}

// setTimer sets a timer to an instant; 0: never.
func setTimer(timers env.Timers, t *wheel.Timer, at clock.Instant) {
	if at == 0 {
		timers.Cancel(t)
	} else {
		timers.Schedule(t, at)
	}
}
