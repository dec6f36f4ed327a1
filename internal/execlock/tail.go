package execlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

const (
	// tail is how long releasing the lock and closing the engine may take together.
	// The command's work is done by then, somebody waits for its exit code, and the
	// lease ends the lock anyway.
	tail = time.Second
	// hurry is what is left of it after a signal: enough for a server that answers.
	hurry = 250 * time.Millisecond
)

// giveUp closes the engines when the lock was not acquired. A try that is under way may have
// been granted, and is given back when it is answered: with replicas, after they have had
// their time. No signal cuts that short (timeout(1) sends each twice), but Config.CloseTimeout
// does. If nothing is under way it ends at once.
func (r *runner) giveUp() {
	closed := make(chan struct{})
	go func() { // ends with Config.CloseTimeout, or with the process
		defer close(closed)
		r.closeAll() // what they could not give back ends with its lease
	}()
	over := time.NewTimer(r.ReplicasHave + tail)
	defer over.Stop()
	select {
	case <-closed:
	case <-over.C:
	}
}

func (r *runner) closeAll() {
	var all sync.WaitGroup
	for _, e := range r.engines {
		all.Go(func() { _ = e.Close() })
	}
	all.Wait()
}

// finish releases the lock and closes the engines. A signal cuts that short. It is an error
// only if the lock was lost before: for the command it makes no difference who ends the lock,
// the release or the lease.
func (r *runner) finish(ctx context.Context, hold *engine.Hold) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	released, closed := make(chan error, 1), make(chan struct{})
	go func() { // ends with Config.CloseTimeout, or with the process
		defer close(closed)
		released <- hold.Unlock(ctx)
		r.closeAll() // what they could not release ends with its lease
	}()
	until := time.Now().Add(tail)
	over := time.NewTimer(tail)
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
			cancel(fmt.Errorf("the server did not release it in time"))
		}
		return r.released(<-released)
	}
}

// released takes what Unlock returned.
func (r *runner) released(err error) error {
	if err == nil || errors.Is(err, engine.ErrLost) {
		return err
	}
	r.Say("the %s was not released and ends with its lease: %s", r.Kind.held(), text(err))
	return nil
}
