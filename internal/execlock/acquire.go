package execlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// notAtOnce is how long a lock may take before it is said who has it.
const notAtOnce = 250 * time.Millisecond

// acquire waits for the lock or a signal.
func (r *runner) acquire(ctx context.Context) (*engine.Hold, error) {
	m := r.eng.Mutex(r.Name)
	f := r.lock(ctx, m)
	defer r.tellHolder(ctx, m)()
	for {
		select {
		case <-f.Done():
			return r.granted(ctx, f)
		case s := <-r.sig.asked:
			f.Abandon()
			return nil, &SignalError{s}
		case <-r.sig.children:
			new(group).look() // as PID 1 of a container we are given others' children
		case <-r.sig.resumed:
		}
	}
}

func (r *runner) lock(ctx context.Context, m engine.Mutex) *engine.Future[*engine.Hold] {
	switch {
	case r.Wait == 0:
		return m.TryLockAsync(ctx, r.Options...)
	case r.Wait > 0:
		return m.LockAsync(ctx, append(r.Options, engine.Wait(r.Wait))...)
	}
	return m.LockAsync(ctx, r.Options...)
}

func (r *runner) granted(ctx context.Context, f *engine.Future[*engine.Hold]) (*engine.Hold, error) {
	hold, err := f.Result()
	if err != nil {
		return nil, err
	}
	select {
	case s := <-r.sig.asked: // both at once: the command must not start
		return nil, errors.Join(&SignalError{s}, r.finish(ctx, hold))
	default:
		return hold, nil
	}
}

// tellHolder says who has the lock, unless stop is called before that is worth
// saying.
func (r *runner) tellHolder(ctx context.Context, m engine.Mutex) (stop func()) {
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
		state, err := m.State(ctx)
		if ctx.Err() == nil {
			r.Say("waiting for lock %q%s", r.Name, holderText(state, err))
		}
	}()
	return func() { cancel(); <-over }
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
