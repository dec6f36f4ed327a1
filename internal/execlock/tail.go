package execlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

const (
	// tail is how long releasing the lock and closing the engine may take together.
	// The command's work is done by then, somebody waits for its exit code, and the
	// lease ends the lock anyway. It is no less than what replicas have by default: the
	// answer to a try that nobody waits for any more comes after that.
	tail = time.Second
	// hurry is what is left of it after a signal: enough for a server that answers.
	hurry = 250 * time.Millisecond
)

// finish releases the lock, if there is one, and closes the engine, within budget. A
// signal cuts that short. It is an error only if the lock was lost before: for the
// command it makes no difference who ends the lock, the release or the lease.
func (r *runner) finish(ctx context.Context, hold *engine.Hold, budget time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	released, closed := make(chan error, 1), make(chan struct{})
	go func() { // ends with Config.CloseTimeout, or with the process
		defer close(closed)
		if hold != nil {
			released <- hold.Unlock(ctx)
		} else {
			released <- nil
		}
		_ = r.eng.Close() // what it could not release ends with its lease
	}()
	until := time.Now().Add(budget)
	over := time.NewTimer(budget)
	defer over.Stop()
	for {
		select {
		case s := <-r.sig.asked:
			if ends(s) && time.Until(until) > hurry {
				until = time.Now().Add(hurry)
				over.Reset(hurry)
			}
			continue
		case <-closed:
		case <-over.C:
			cancel(fmt.Errorf("the server did not answer in time"))
		}
		return r.released(<-released)
	}
}

// released takes what Unlock returned.
func (r *runner) released(err error) error {
	if err == nil || errors.Is(err, engine.ErrLost) {
		return err
	}
	r.Say("the lock was not released and ends with its lease: %s", text(err))
	return nil
}
