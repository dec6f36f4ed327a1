package target

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// Quorum returns what several flags --quorum and the environment say, with the access of f.
func (f *Flag) Quorum(addrs []string) (all []engine.Config, err error) {
	for _, addr := range addrs {
		one := &Flag{cmd: f.cmd, name: "quorum", addr: addr, Access: f.Access}
		cfg, err := one.Config()
		if err != nil {
			return nil, err
		}
		all = append(all, cfg)
	}
	return all, nil
}

// straggling is how long the others may take to connect once a majority has.
const straggling = 250 * time.Millisecond

// ConnectMost connects to all servers at the same time, and is content with a majority: then
// the engines of the others go on connecting. One server is a majority of one. The user is told
// which servers are missing.
func (f *Flag) ConnectMost(ctx context.Context, servers []engine.Config, p Patience) ([]*engine.Engine, error) {
	type connected struct {
		at  int
		eng *engine.Engine
		err error
	}
	trying, enough := context.WithCancel(ctx)
	defer enough()
	results := make(chan connected, len(servers))
	for i, cfg := range servers {
		go func() {
			eng, err := f.Connect(trying, cfg, p)
			results <- connected{i, eng, err}
		}()
	}
	majority := len(servers)/2 + 1
	engines, errs := make([]*engine.Engine, len(servers)), make([]error, len(servers))
	up, down, late := 0, 0, (<-chan time.Time)(nil)
	for range servers {
		var r connected
		select {
		case r = <-results:
		case <-late:
			enough() // those that are left fail soon
			r = <-results
		}
		if engines[r.at], errs[r.at] = r.eng, r.err; r.err != nil {
			if down++; len(servers)-down == majority-1 { // it cannot be had any more
				late = time.After(straggling)
			}
			continue
		}
		if up++; up == majority {
			late = time.After(straggling)
		}
	}
	err := errors.Join(errs...)
	if err != nil && len(servers) > 1 {
		err = fmt.Errorf("%d of %d servers can be used, %d are needed: %w", up, len(servers), majority, err)
	}
	if up < majority || ctx.Err() != nil {
		for _, e := range engines {
			if e != nil {
				_ = e.Close()
			}
		}
		return nil, err
	}
	for i, cfg := range servers {
		if engines[i] != nil {
			continue
		}
		where := strings.Join(cfg.Addrs, ",")
		if cfg.Master != "" { // the sentinels may be those of other primaries, too
			where = cfg.Master + "@" + where
		}
		p.Say("going on without %s: %s", where, shortly(errs[i]))
		cfg.Lazy = true
		if engines[i], err = engine.New(ctx, cfg); err != nil {
			return nil, fmt.Errorf("--quorum: %w", err)
		}
	}
	return engines, nil
}

// shortly is the first line of an error.
func shortly(err error) string {
	if errors.Is(err, context.Canceled) {
		return "no answer yet"
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimPrefix(strings.TrimPrefix(text, "engine: "), "server is unavailable: ")
}
