package bench

import (
	"context"
	"errors"

	"github.com/pawl-lock/pawl/engine"
	pawlpprof "github.com/pawl-lock/pawl/pprof"
)

// Run measures Pawl in the scenario of cfg, on a server that it starts if need be.
// A run that went wrong, but ended, still has a Result: see Result.Err.
func Run(ctx context.Context, cfg Config) (result *Result, err error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	server, err := connectServer(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer server.Close()
	if cfg.Profile != "" {
		stop, err := pawlpprof.Capture(cfg.Profile)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	switch {
	case cfg.Processes > 0:
		return runProcesses(ctx, server, cfg)
	case cfg.Scenario == Waiters:
		return runWaiters(ctx, server, cfg)
	case cfg.Scenario == Held:
		return runHeld(ctx, server, cfg)
	}
	ec, err := cfg.engine(server)
	if err != nil {
		return nil, err
	}
	client, err := OpenPawl(ctx, ec)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	return RunLoop(ctx, server, client, cfg)
}

// engine is the configuration of the engine under measurement.
func (c Config) engine(server *Server) (engine.Config, error) {
	ec, err := server.config()
	if err != nil {
		return ec, err
	}
	ec.ClientName, server.named = server.clientName(), true
	ec.NoInspect = true // or a run of more than a second would have a command that is none of a pair's
	if c.Lease != 0 {
		ec.Lease = c.Lease
	}
	if c.tune != nil {
		c.tune(&ec)
	}
	return ec, nil
}
