package engine

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/reason"
)

// closing is the end of an engine.
//
//	open --Shutdown: refuse new, wait for holders--+
//	  |                                            v
//	  +--Close----------------> closing: tell holders, fail waiters, release
//	                               |   table empty, or CloseTimeout
//	                               v
//	                            closed: connections, wheel, callbacks ended
type closing struct {
	once    sync.Once
	err     error
	begun   atomic.Bool           // Close, which a Shutdown may delay for hours
	emptied chan struct{}         // capacity 1: the last resource left a shard
	refused atomic.Pointer[error] // the server's, to release a lock
	delayed atomic.Pointer[error] // the same, for now
}

// noteRefusal keeps what the server said to a release that is given up, or goes on for now, for
// the error of Close.
func (e *Engine) noteRefusal(o machine.Outcome) {
	if !e.closing.Load() {
		return
	}
	why := o.Err // not sooner: it goes to the heap
	switch o.Verdict {
	case machine.Denied:
		e.closed.refused.Store(&why)
	case machine.Busy:
		e.closed.delayed.Store(&why)
	}
}

// emptied notes that a resource left the table, and makes a Close or Shutdown that waits
// for an empty table look again. The caller holds the shard's lock.
func (e *Engine) emptied(sh *shard) {
	if !e.closing.Load() {
		return
	}
	for _, named := range sh.resources {
		if len(named) > 0 {
			return
		}
	}
	e.lookAgain()
}

func (e *Engine) lookAgain() {
	select {
	case e.closed.emptied <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// Close ends every hold with reason EngineClosed and every waiting acquisition with
// ErrClosed, releases the locks on the server (one with a MinHold stays taken for the rest
// of that), and ends all connections and goroutines.
// It waits for callbacks and hooks that are running. All of this takes at most
// Config.CloseTimeout, if the Dialer, Credentials and AddrMap return when they should.
//
// The error says what was not done by then. ErrOutcomeUnknown: some locks were not
// released, for want of time or because the server refused it, and end with their leases.
// ErrPending: every lock was released, but a callback or hook has not returned. Calling
// Close again returns the same error.
//
// Do not call Close from a callback or hook: Close waits for it, so the call takes the
// whole CloseTimeout and returns ErrPending.
func (e *Engine) Close() error {
	e.closed.once.Do(func() { e.closed.err = e.close() })
	return e.closed.err
}

// Shutdown lets work finish. It refuses new acquisitions, fails those that wait, waits
// until every hold has been unlocked or ctx ends, and then closes the engine. If ctx
// ends first, the holds that are left end as with Close, and the error has the context's
// cause and Is ErrClosed, or what Close returns if that fails. With a nil ctx it does nothing and returns ErrInvalid.
func (e *Engine) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return errNoContext
	}
	e.closing.Store(true)
	e.gatherings.close()
	e.each((*machine.Resource).StopWaiting)
	if !e.awaitEmpty(ctx.Done()) {
		err := context.Cause(ctx)
		if closed := e.Close(); closed != nil {
			return reason.Because(err, closed)
		}
		return reason.Because(err, ErrClosed)
	}
	return e.Close()
}

func (e *Engine) close() error {
	e.closing.Store(true)
	e.closed.begun.Store(true)
	e.closed.delayed.Store(nil) // it was said to a Shutdown, perhaps long ago
	ctx, cancel := context.WithTimeout(context.Background(), e.cfg.CloseTimeout)
	defer cancel()

	e.gatherings.close()
	e.each((*machine.Resource).StopWaiting)
	e.each((*machine.Resource).EndHold)
	clean := e.awaitEmpty(ctx.Done())
	e.renewer.Close()
	_ = e.client.Close() // fails what is unanswered: see machine.Shut
	e.each((*machine.Resource).Drop)
	e.wheel.Close()
	e.hooks.close()
	quiet := e.exec.Quiet(ctx.Done())
	e.exec.Close()
	refused := e.closed.refused.Load()
	switch why := cmp.Or(refused, e.closed.delayed.Load()); {
	case !clean && why != nil:
		return reason.Because(ErrOutcomeUnknown, errNotClean, *why)
	case !clean:
		return reason.Because(ErrOutcomeUnknown, errNotClean)
	case refused != nil:
		return reason.Because(ErrOutcomeUnknown, errNotReleased, *refused)
	case !quiet:
		return reason.Because(ErrPending, errNotQuiet)
	}
	return nil
}

// each visits all resources, under their shard's lock, and does what the visits
// leave to be done.
func (e *Engine) each(visit func(r *machine.Resource, fx *machine.Effects)) {
	for i := range e.table {
		sh := &e.table[i]
		sh.mu.Lock()
		var all []*machine.Resource
		for _, named := range sh.resources {
			for _, r := range named {
				all = append(all, r)
			}
		}
		sh.mu.Unlock()
		for _, r := range all {
			var fx machine.Effects
			sh.mu.Lock()
			if !r.Out {
				visit(r, &fx)
			}
			sh.mu.Unlock()
			e.run(&fx)
		}
	}
}

// awaitEmpty waits until no resource is left. Shutdown and Close may wait both.
func (e *Engine) awaitEmpty(stop <-chan struct{}) bool {
	for {
		if e.resources() == 0 {
			e.lookAgain() // the token that woke us was the other's too
			return true
		}
		select {
		case <-e.closed.emptied:
		case <-stop:
			return e.resources() == 0
		}
	}
}

func (e *Engine) resources() (n int) {
	for i := range e.table {
		sh := &e.table[i]
		sh.mu.Lock()
		for _, named := range sh.resources {
			n += len(named)
		}
		sh.mu.Unlock()
	}
	return n
}
