package target

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/serverconfig"
	"github.com/pawl-lock/pawl/resp"
)

const (
	// connectTimeout is how long a command tries to reach its server, unless the
	// URL says otherwise with dial_timeout.
	connectTimeout = 5 * time.Second
	// quietFor is how long a server is waited for before that is said.
	quietFor = time.Second
	// A server that was not there is tried again after the first pause at first, after the
	// longest in the end: what it refuses it may count.
	firstPause, longestPause = 50 * time.Millisecond, time.Second
)

// Patience is how long a server is waited for.
type Patience struct {
	// AtMost bounds the waiting; 0: as long as one attempt to connect takes.
	AtMost time.Duration
	// Wait tries again after whatever may pass.
	Wait bool
	// Say tells the user what is waited for. It must not block.
	Say func(format string, args ...any)
}

// Connect connects to the server; the caller closes the engine.
func (f *Flag) Connect(ctx context.Context, cfg engine.Config, p Patience) (*engine.Engine, error) {
	if p.Wait {
		return f.await(ctx, cfg, p)
	}
	dial := cmp.Or(cfg.DialTimeout, connectTimeout)
	timeout, slack := dial, 2*time.Second // New ends by itself, and its error says more than that time is over
	if p.AtMost > 0 && p.AtMost < dial+slack {
		timeout, slack = p.AtMost, 0
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout+slack, fmt.Errorf("tried for %v", timeout))
	defer cancel()
	eng, err := engine.New(ctx, cfg)
	return eng, f.explained(err)
}

// await tries until the server can be used, or for AtMost, or until something fails that does not
// pass by itself.
func (f *Flag) await(ctx context.Context, cfg engine.Config, p Patience) (*engine.Engine, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.AtMost, fmt.Errorf("tried for %v", p.AtMost))
	defer cancel()
	var latest struct { // attempt that ended by itself
		sync.Mutex
		err error
	}
	notice := time.AfterFunc(quietFor, func() {
		latest.Lock()
		defer latest.Unlock()
		why := "no answer yet"
		if latest.err != nil {
			why = shortly(latest.err)
		}
		p.Say("waiting up to %v for %s: %s", p.AtMost, serverconfig.Server(cfg), why)
	})
	defer notice.Stop()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		eng, err := engine.New(ctx, cfg)
		if err == nil || ctx.Err() == nil && !f.mayPass(err) {
			return eng, f.explained(err)
		}
		if ctx.Err() == nil || latest.err == nil {
			latest.Lock()
			latest.err = err
			latest.Unlock()
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			if ctx.Err() == context.DeadlineExceeded {
				err = fmt.Errorf("%w; %w", latest.err, context.Cause(ctx))
			}
			return nil, f.explained(err)
		}
	}
}

// mayPass reports whether a server may be usable later, though nobody changes what we are told of
// it.
func (f *Flag) mayPass(err error) bool {
	var refused *resp.ServerError
	switch {
	case errors.Is(err, engine.ErrInvalid):
		return false
	case !resp.Lasting(err), resp.Unclear(err): // its password comes a moment after the server
		return true
	}
	return f.Access.rotates() && errors.As(err, &refused) && (refused.Code == "WRONGPASS" || refused.Code == "NOAUTH")
}

// explained adds to the error of an engine what to do.
func (f *Flag) explained(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w; %s", err, f.WayOut(err)) // it names the server
}
