package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/clock"
)

// An Observer is called at events, for metrics and traces: see Config.Observer. It may call the
// engine, except Close. Methods may be called by many goroutines at the same time.
//
// Which goroutine calls:
//
//   - AcquireStart: the one that calls Lock, TryLock, Acquire and so on, before anything is sent,
//     even if the call is refused at once.
//   - AcquireEnd: the same. HoldEnd and ReleaseEnd: the one that calls Unlock, after the release was
//     sent and after its answer. So an Observer that blocks holds up its own caller.
//   - Everything else: one goroutine of the engine, in order. That covers the future of a LockAsync, except
//     its AcquireStart; parts (see Acquisition.PartOf); lost holds; RenewEnd and ConnChange. Its queue has
//     room for 65,536 calls, log lines included; what does not fit is dropped, and counted in
//     Stats.EventsDropped. Close does not wait for calls after it, such as the AcquireEnd of a LockAsync that
//     fails with ErrClosed.
//
// Each AcquireStart is followed by one AcquireEnd, and, if the outcome is Granted, by one HoldEnd. Each
// Unlock that ends a hold is followed by one ReleaseEnd, with its result. If AcquireStart panics, so does the call
// of Lock; nothing begins, and nothing follows.
// Permits of a Semaphore are a hold, too; its other operations and a Latch are not observed.
//
// If the Observer has a method Attach(*Engine), New calls it with the engine, so that it can read
// Stats.
type Observer interface {
	// AcquireStart: an acquisition begins. The context that it returns is made from ctx, or is
	// ctx. It takes the place of ctx for this acquisition: it is the parent of what Do gives to its
	// function, Hold.Context(nil) has its values, and the later calls get it.
	AcquireStart(ctx context.Context, a Acquisition) context.Context
	// AcquireEnd: it was granted, or has failed.
	AcquireEnd(ctx context.Context, a Acquisition, end AcquireEnd)
	// HoldEnd: what was granted has been unlocked, or was lost. (If only its Unlock finds that it
	// was lost, HoldEnd has no reason: see what Unlock returns, and Stats.Lost.)
	HoldEnd(ctx context.Context, a Acquisition, end HoldEnd)
	// ReleaseEnd: Unlock has its result.
	ReleaseEnd(ctx context.Context, a Acquisition, end ReleaseEnd)
	// RenewEnd: a renewal was answered, or has failed.
	RenewEnd(end RenewEnd)
	// ConnChange: a connection came up or was lost.
	ConnChange(change ConnChange)
}

// Acquisition is a request for a lock, for several as one, or for permits.
type Acquisition struct {
	// Kind is "mutex", "spin", "fenced", "fair", "read", "write", "permit" or "semaphore"; of
	// several locks "multilock" or "redlock".
	Kind string
	Name string // as the caller gave it; of several locks see MultiLock.Name
	// PartOf is "multilock" or "redlock" for one lock of several, which the whole tries, gives
	// back and tries again by itself. The whole has events of its own, so a metric that counts what
	// callers do leaves parts out.
	PartOf  string
	Permits int  // that it wants; 0 for a lock
	Try     bool // TryLock, which does not wait for the lock
}

// AcquireEnd is the result of an acquisition.
type AcquireEnd struct {
	Outcome Outcome
	Err     error // nil if it was granted; what the caller gets
	Time    time.Time
	Wait    time.Duration // from when AcquireStart has returned, to the result
	// Attempts is how many commands were sent for it; it is 0 for a semaphore, whose commands serve
	// many callers, and for several locks.
	Attempts int
	// HandedOver: another holder of this process handed it over, or it joined other readers; see
	// Config.HandOverTime.
	HandedOver bool
	Reentry    bool  // it re-enters a hold
	Token      int64 // Hold.Token

	hold *lockHold // nil if there is no owner
}

// Owner returns Hold.Owner. The text is made when you ask for it.
func (end AcquireEnd) Owner() string { return end.hold.owner() }

// HoldEnd is the end of a hold.
type HoldEnd struct {
	Reason  LostReason // why it was lost; 0 if it was unlocked
	Time    time.Time
	Wait    time.Duration // AcquireEnd.Wait
	Held    time.Duration // since it was granted
	Reentry bool
	Token   int64

	hold *lockHold
}

// Owner returns Hold.Owner, as AcquireEnd.Owner does.
func (end HoldEnd) Owner() string { return end.hold.owner() }

// ReleaseEnd is the result of an Unlock.
type ReleaseEnd struct {
	Err  error // what Unlock returns
	Time time.Time
	Took time.Duration // since the hold ended; 0 if the lock was handed over at once, see Config.HandOverTime
}

// RenewEnd is one renewal script.
type RenewEnd struct {
	Server string // that of these holds; "" if none is known
	Holds  int
	Lag    time.Duration // how long after it was due it was sent
	RTT    time.Duration
	Err    error
}

// ConnChange is a change of one connection.
type ConnChange struct {
	Addr string
	Role string // "lane", "renewal", "pubsub", "durable", "durable renewal"
	Lane int
	Up   bool
	Err  error
}

// Outcome is the result of an acquisition, as a label for metrics.
type Outcome uint8

// The outcomes.
const (
	// Granted: the caller has it.
	Granted Outcome = iota + 1
	// Refused: somebody else has it, and the call was a TryLock.
	Refused
	// TimedOut: Wait or the deadline of the context was over.
	TimedOut
	// Canceled: the context was cancelled, or the future was abandoned.
	Canceled
	// Unavailable: the server was away, did not answer or was overloaded.
	Unavailable
	// Closed: the engine was closing.
	Closed
	// Invalid: the caller has made a mistake (ErrInvalid, ErrKindConflict, ErrReentry).
	Invalid
	// Failed: anything else (ErrWrongType, ErrNotAcked, ErrGrantTooLate, ErrNoPermits).
	Failed
)

var outcomes = [...]string{"", "granted", "refused", "timed_out", "canceled", "unavailable", "closed", "invalid", "failed"}

// String returns the outcome as a label of a metric: granted, refused, timed_out, canceled,
// unavailable, closed, invalid or failed. These stay the same from version to version.
func (o Outcome) String() string {
	if int(o) < len(outcomes) {
		return outcomes[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// outcomeOf is the outcome of an acquisition under ctx that ended with err. The causes that a user
// gave to ctx count as its end. ctx is asked last, as it may be the user's own.
func outcomeOf(ctx context.Context, err error) Outcome {
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) })
	}
	switch {
	case err == nil:
		return Granted
	case is(ErrClosed):
		return Closed
	case is(ErrInvalid, ErrKindConflict, ErrReentry):
		return Invalid
	case is(lockerr.ErrWaited, context.DeadlineExceeded):
		return TimedOut
	case is(lockerr.ErrAbandoned, context.Canceled):
		return Canceled
	}
	switch ended, cause := endOfContext(ctx); {
	case ended == context.DeadlineExceeded && is(cause):
		return TimedOut
	case ended != nil && is(cause):
		return Canceled
	case is(ErrHeld):
		return Refused
	case is(ErrUnavailable, ErrOverloaded):
		return Unavailable
	}
	return Failed
}

// endOfContext is why ctx has ended, if it has. One that panics has not: its Lock has had that panic, if it was
// to have one, and nobody is there for another.
func endOfContext(ctx context.Context) (ended, cause error) {
	defer func() { _ = recover() }()
	return ctx.Err(), context.Cause(ctx)
}

// ObserverFuncs is an Observer made of functions, for one that needs a few of them. A nil one is not
// called. With OnRenewEnd and OnConnChange alone, acquisitions cost as much as without an Observer.
type ObserverFuncs struct {
	OnAcquireStart func(ctx context.Context, a Acquisition) context.Context
	OnAcquireEnd   func(ctx context.Context, a Acquisition, end AcquireEnd)
	OnHoldEnd      func(ctx context.Context, a Acquisition, end HoldEnd)
	OnReleaseEnd   func(ctx context.Context, a Acquisition, end ReleaseEnd)
	OnRenewEnd     func(end RenewEnd)
	OnConnChange   func(change ConnChange)
}

var _ Observer = ObserverFuncs{}

// ofAcquisitions is the Observer if it is called for acquisitions, else nil.
func ofAcquisitions(o Observer) Observer {
	f, some := o.(ObserverFuncs)
	if some && f.OnAcquireStart == nil && f.OnAcquireEnd == nil && f.OnHoldEnd == nil && f.OnReleaseEnd == nil {
		return nil
	}
	return o
}

// AcquireStart calls OnAcquireStart.
func (f ObserverFuncs) AcquireStart(ctx context.Context, a Acquisition) context.Context {
	if f.OnAcquireStart == nil {
		return ctx
	}
	return f.OnAcquireStart(ctx, a)
}

// AcquireEnd calls OnAcquireEnd.
func (f ObserverFuncs) AcquireEnd(ctx context.Context, a Acquisition, end AcquireEnd) {
	if f.OnAcquireEnd != nil {
		f.OnAcquireEnd(ctx, a, end)
	}
}

// HoldEnd calls OnHoldEnd.
func (f ObserverFuncs) HoldEnd(ctx context.Context, a Acquisition, end HoldEnd) {
	if f.OnHoldEnd != nil {
		f.OnHoldEnd(ctx, a, end)
	}
}

// ReleaseEnd calls OnReleaseEnd.
func (f ObserverFuncs) ReleaseEnd(ctx context.Context, a Acquisition, end ReleaseEnd) {
	if f.OnReleaseEnd != nil {
		f.OnReleaseEnd(ctx, a, end)
	}
}

// RenewEnd calls OnRenewEnd.
func (f ObserverFuncs) RenewEnd(end RenewEnd) {
	if f.OnRenewEnd != nil {
		f.OnRenewEnd(end)
	}
}

// ConnChange calls OnConnChange.
func (f ObserverFuncs) ConnChange(change ConnChange) {
	if f.OnConnChange != nil {
		f.OnConnChange(change)
	}
}

// Observers returns an Observer that calls each of those, in this order. Each AcquireStart gets the context
// that the one before it returned. Nil Observers are left out; the result is nil if there is no other. If one
// panics, the others are still called, and the panic continues after that. The exception is AcquireStart:
// those after it are not called, and those before it get their AcquireEnd.
func Observers(all ...Observer) Observer {
	var some observers
	for _, one := range all {
		if one != nil {
			some = append(some, one)
		}
	}
	switch len(some) {
	case 0:
		return nil
	case 1:
		return some[0]
	}
	return some
}

type observers []Observer

func (all observers) AcquireStart(ctx context.Context, a Acquisition) context.Context {
	begun := 0
	defer func() {
		if begun < len(all) {
			all[:begun].AcquireEnd(ctx, a, AcquireEnd{Outcome: Canceled, Err: notAcquired(a.Name, lockerr.ErrAbandoned), Time: clock.System().Wall()})
		}
	}()
	for _, one := range all {
		if next := one.AcquireStart(ctx, a); next != nil {
			ctx = next
		}
		begun++
	}
	return ctx
}

func (all observers) AcquireEnd(ctx context.Context, a Acquisition, end AcquireEnd) {
	driver.Each(all, func(one Observer) { one.AcquireEnd(ctx, a, end) })
}

func (all observers) HoldEnd(ctx context.Context, a Acquisition, end HoldEnd) {
	driver.Each(all, func(one Observer) { one.HoldEnd(ctx, a, end) })
}

func (all observers) ReleaseEnd(ctx context.Context, a Acquisition, end ReleaseEnd) {
	driver.Each(all, func(one Observer) { one.ReleaseEnd(ctx, a, end) })
}

func (all observers) RenewEnd(end RenewEnd) {
	driver.Each(all, func(one Observer) { one.RenewEnd(end) })
}

func (all observers) ConnChange(change ConnChange) {
	driver.Each(all, func(one Observer) { one.ConnChange(change) })
}

// Attach attaches those that have the method.
func (all observers) Attach(e *Engine) {
	for _, one := range all {
		attach(one, e)
	}
}

func attach(o Observer, e *Engine) {
	if a, ok := o.(interface{ Attach(*Engine) }); ok {
		a.Attach(e)
	}
}
