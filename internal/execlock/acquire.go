package execlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// notAtOnce is how long a lock may take before its holder is named.
const notAtOnce = 250 * time.Millisecond

// acquire waits for the locks or a signal.
func (r *runner) acquire(ctx context.Context) (*engine.Hold, error) {
	try := r.attempt(ctx)
	defer r.tellHolder(ctx)()
	for {
		select {
		case <-try.done:
			return r.granted(ctx, try)
		case s := <-r.sig.asked:
			try.abandon()
			return nil, &SignalError{s}
		case <-r.sig.children:
			new(group).look() // as PID 1 of a container we are given others' children
		case <-r.sig.resumed:
		}
	}
}

func (r *runner) granted(ctx context.Context, try attempt) (*engine.Hold, error) {
	h, err := try.result()
	if err != nil {
		return nil, err
	}
	select {
	case s := <-r.sig.asked: // both at once: the command must not start
		return nil, errors.Join(&SignalError{s}, r.finish(ctx, h))
	default:
		return h, nil
	}
}

// tellHolder names the lock's holder, unless stop is called before that is worth
// saying.
func (r *runner) tellHolder(ctx context.Context) (stop func()) {
	if !r.SayWhoHolds {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		patience := time.NewTimer(notAtOnce)
		defer patience.Stop()
		select {
		case <-ctx.Done():
			return
		case <-patience.C:
		}
		waiting := r.waiting(ctx)
		if ctx.Err() == nil {
			r.Say("waiting for %s", waiting)
		}
	}()
	return func() { cancel(); <-over }
}

// waiting says what is waited for, and names its holder.
func (r *runner) waiting(ctx context.Context) string {
	if r.Kind == Semaphore {
		s := r.engines[0].PermitSemaphore(r.Names[0])
		held, err := s.Acquired(ctx)
		return fmt.Sprintf("a permit of %q%s", s.Name(), takenText(held, err))
	}
	name, state, err := r.firstHeld(ctx)
	return fmt.Sprintf("lock %q%s", name, holderText(state, err))
}

// takenText is what follows the name of a semaphore that is waited for.
func takenText(held int, err error) string {
	if err != nil {
		return ": " + text(err)
	}
	return fmt.Sprintf(": %d taken", held)
}

// firstHeld returns the first of the locks that is held, or what is known of the last one.
func (r *runner) firstHeld(ctx context.Context) (name string, s engine.State, err error) {
	for _, l := range r.locks() {
		name = l.Name()
		if s, err = l.State(ctx); s.Locked {
			break
		}
	}
	return name, s, err
}

// holderText is what follows the name of a lock that is waited for.
func holderText(s engine.State, err error) string {
	switch {
	case err != nil:
		return ": " + text(err)
	case !s.Locked: // by now it is free
		return ""
	}
	text := ", held by " + Shown(s.Holders[0].ID)
	if n := len(s.Holders) - 1; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	if s.TTL < 0 {
		return text + ", without a lease: it never ends by itself"
	}
	unit := time.Second
	if s.TTL < unit {
		unit = time.Millisecond
	}
	return text + fmt.Sprintf(", lease ends in %v unless renewed", s.TTL.Round(unit))
}
