package execlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

const (
	// sayAgain is how often a waiter for a permit says how many there are: with the server's data
	// the number may be gone, and nobody would get one.
	sayAgain = 3 * time.Second
	// afterOutage is the pause before that is tried again which the server did not take.
	afterOutage = 100 * time.Millisecond
)

var errWait = errors.New("--wait is over")

// permits is a semaphore of which one permit is wanted.
type permits struct {
	*runner
	of           engine.PermitSemaphore
	reportedNone bool // the user knows that it has no permits
}

// permit begins to acquire a permit of the semaphore, after it was said how many there are.
func (r *runner) permit(ctx context.Context) attempt {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	var h *engine.Hold
	var err error
	go func() { // ends with the context
		defer close(done)
		p := &permits{runner: r, of: r.engines[0].PermitSemaphore(r.Names[0])}
		if r.Wait == 0 {
			h, err = p.tryOnce(ctx)
		} else {
			h, err = p.wait(ctx)
		}
	}()
	abandon := func() {
		cancel()
		<-done // nothing is said after that
	}
	return attempt{done, abandon, func() (*engine.Hold, error) { return h, err }}
}

// tryOnce says how many permits there are only if nobody has said so. Others may say it at the same
// time, so it tries again whoever was first.
func (p *permits) tryOnce(ctx context.Context) (*engine.Hold, error) {
	h, refused := p.of.TryAcquire(ctx, 1, p.Options...)
	if !errors.Is(refused, engine.ErrNoPermits) {
		return h, refused
	}
	if p.Permits == 0 {
		return nil, &unset{p.of.Name(), refused}
	}
	if err := p.say(ctx); err != nil {
		return nil, err
	}
	return p.of.TryAcquire(ctx, 1, p.Options...)
}

// unset is engine.ErrNoPermits for somebody who has a command line, and no API.
type unset struct {
	name string
	error
}

func (e *unset) Error() string {
	return fmt.Sprintf("semaphore %q not acquired: nobody has said how many permits there are: give --permits", e.name)
}

func (e *unset) Unwrap() error { return e.error }

func (p *permits) wait(ctx context.Context) (*engine.Hold, error) {
	began := time.Now()
	if err := p.saySurely(ctx); err != nil {
		return nil, err
	}
	defer p.keepSaying(ctx)()
	opts := p.Options
	if p.Wait > 0 {
		opts = append(opts, engine.Wait(max(p.Wait-time.Since(began), time.Millisecond)))
	}
	return p.of.Acquire(ctx, 1, opts...)
}

// saySurely says it, and repeats that during an outage, which ends no waiting.
func (p *permits) saySurely(ctx context.Context) error {
	if p.Wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, p.Wait, errWait)
		defer cancel()
	}
	for {
		err := p.say(ctx)
		passes := errors.Is(err, engine.ErrUnavailable) || errors.Is(err, engine.ErrOutcomeUnknown)
		if !passes || !pause(ctx, afterOutage) {
			return err
		}
	}
}

// keepSaying says it again and again until stop is called. A refusal is also one of the permit.
func (p *permits) keepSaying(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for pause(ctx, sayAgain) {
			_ = p.say(ctx)
		}
	}()
	return func() { cancel(); <-over }
}

// say says how many permits there are, unless somebody has said so before: then it changes nothing,
// so it may be repeated. Of a semaphore that has none one could wait for ever: if the user does not
// say how many, the user is told.
func (p *permits) say(ctx context.Context) error {
	if p.Permits > 0 {
		_, err := p.of.TrySetPermits(ctx, p.Permits)
		return err
	}
	capacity, err := p.of.Capacity(ctx)
	if err != nil {
		return nil // the permit is what counts
	}
	none := capacity <= 0
	if none && !p.reportedNone {
		p.Say("semaphore %q has no permits: --permits says how many it has", p.of.Name())
	}
	p.reportedNone = none
	return nil
}

// pause waits, and reports whether ctx still lives.
func pause(ctx context.Context, d time.Duration) bool {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
		return true
	case <-ctx.Done():
		return false
	}
}
