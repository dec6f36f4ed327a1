package engine

import (
	"cmp"
	"context"
	"sync/atomic"

	"github.com/pawl-lock/pawl/engine/internal/reason"
)

// closing is the end of an engine.
//
//	open --Shutdown: refuse new, fail waiters, wait for holders--+
//	  |                                                          v
//	  +--Close------------------> closing: fail waiters, tell holders, release
//	                               |   table empty, or CloseTimeout
//	                               v
//	                            closed: connections, wheel, callbacks ended
type closing struct {
	asked atomic.Bool
	over  chan struct{} // closed when err is the result of Close
	err   error
}

// Close ends every hold with reason EngineClosed and every waiting acquisition with
// ErrClosed, releases the locks on the server (one with a MinHold stays taken for the rest
// of that), and ends all connections and goroutines.
// Permits of semaphores are given back, too, after their Done is closed.
// It waits for callbacks and hooks that are running. All of this takes at most
// Config.CloseTimeout, if the Dialer, Credentials and AddrMap return when they should.
//
// The error says what was not done by then. ErrOutcomeUnknown: some locks were not
// released, for want of time or because the server refused it, and end with their leases;
// permits have none, and stay taken.
// ErrPending: every lock was released, but a callback or hook has not returned. Calling
// Close again returns the same error.
//
// Do not call Close from a callback or hook: Close waits for it, so the call takes the
// whole CloseTimeout and returns ErrPending.
func (e *Engine) Close() error {
	if e.closed.asked.CompareAndSwap(false, true) {
		defer close(e.closed.over)
		e.closed.err = e.close()
		return e.closed.err
	}
	e.world.Wait(e.closed.over, nil, nil)
	return e.closed.err
}

// Shutdown lets work finish. It refuses new acquisitions, fails those that wait, waits
// until every hold has been unlocked or ctx ends, and then closes the engine. Meanwhile you
// can unlock, release permits, extend a hold, and count a latch down. Everything else
// returns ErrClosed: re-entries and Downgrade, State and ForceUnlock, Available and
// Await, too. What was lost while a server was out of reach it waits for as well, as long as that may have it: for
// the lease, or for those of the readers beside a writer. If ctx ends first, the holds that are left end as with Close, and the error has the context's
// cause and Is ErrClosed, or what Close returns if that fails. With a nil ctx it does nothing and returns ErrInvalid.
//
// Shut down first what still takes locks (an HTTP server, say), and end the contexts of loops that
// hold one until then: nobody tells these.
func (e *Engine) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return reason.ErrNoContext
	}
	e.table.Shut()
	e.gatherings.close()
	e.table.StopWaiting()
	if !e.table.AwaitEmpty(ctx.Done()) {
		err := context.Cause(ctx)
		if closed := e.Close(); closed != nil {
			return reason.Because(err, closed)
		}
		return reason.Because(err, ErrClosed)
	}
	return e.Close()
}

func (e *Engine) close() error {
	e.table.Close()
	timeout, stop := e.world.After(e.cfg.CloseTimeout)
	defer stop()

	e.gatherings.close()
	e.table.StopWaiting()
	e.table.EndHolds()
	clean := e.table.AwaitEmpty(timeout)
	e.table.Renewer.Close()
	_ = e.table.Client.Close() // fails what is unanswered: see machine.Shut
	e.table.Drop()
	e.table.Timers.Close()
	e.hooks.close()
	quiet := e.awaitQuiet(timeout)
	e.exec.Close()
	refused, delayed := e.table.Refused()
	switch why := cmp.Or(refused, delayed); {
	case !clean && why != nil:
		return reason.Because(ErrOutcomeUnknown, errNotClean, why)
	case !clean:
		return reason.Because(ErrOutcomeUnknown, errNotClean)
	case refused != nil:
		return reason.Because(ErrOutcomeUnknown, errNotReleased, refused)
	case !quiet:
		return reason.Because(ErrPending, errNotQuiet)
	}
	return nil
}

// awaitQuiet waits until no callback or hook runs any more.
func (e *Engine) awaitQuiet(stop <-chan struct{}) bool {
	idle := e.exec.Idle()
	if e.world.Wait(idle, stop, nil) == 0 {
		return true
	}
	select {
	case <-idle: // both
		return true
	default:
		return false
	}
}
