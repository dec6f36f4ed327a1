package bench

import (
	"context"

	"github.com/pawl-lock/pawl/bench/internal/redisadmin"
	"github.com/pawl-lock/pawl/engine"
)

// Client is a lock library in a closed loop.
type Client interface {
	// Name is how reports call it.
	Name() string
	// Worker returns what locks and unlocks name once, for one goroutine; the calls
	// follow each other.
	Worker(name string) func(ctx context.Context) error
	// Close ends the client. Nothing is held any more, unless a worker was stuck.
	Close() error
}

// OpenPawl returns the engine as a Client.
func OpenPawl(ctx context.Context, cfg engine.Config) (Client, error) {
	eng, err := newEngine(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return pawl{eng}, nil
}

func newEngine(ctx context.Context, cfg engine.Config) (*engine.Engine, error) {
	ctx, cancel := context.WithTimeout(ctx, redisadmin.Patience(cfg))
	defer cancel()
	return engine.New(ctx, cfg)
}

type pawl struct{ eng *engine.Engine }

func (p pawl) Name() string { return "pawl" }
func (p pawl) Close() error { return p.eng.Close() }

func (p pawl) Worker(name string) func(context.Context) error {
	m := p.eng.Mutex(name)
	return func(ctx context.Context) error {
		h, err := m.Lock(ctx)
		if err != nil {
			return err
		}
		return h.Unlock(ctx)
	}
}
