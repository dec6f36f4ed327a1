// Package demo shows what the lock is for: processes that contend for it, add to
// a counter in the server with a read and a write that nothing else protects, and
// lose nothing, even if one is killed while it holds the lock. Then they do the
// same without the lock and lose updates: so the first result was not luck.
package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/embedded"
	"github.com/pawl-lock/pawl/internal/serverconfig"
)

// Config says what to show.
type Config struct {
	// URL is the server's, with its password; empty: an embedded server.
	URL string
	// Parse, if set, is used instead of engine.ParseURL: it adds certificates and passwords.
	Parse func(url string) (engine.Config, error)
	// Workers is the number of processes, at least 3: one is killed.
	Workers int
	// Increments is how often each worker adds 1.
	Increments int
	// Lease is the watchdog's, at most MaxLease; the killed worker's lock ends after it.
	Lease time.Duration
	// WithoutLock leaves the lock out of the first round too, which must then be
	// found out.
	WithoutLock bool
	// Worker makes the command of a worker process, which calls Work. Its standard
	// input and output belong to the demo.
	Worker func(ctx context.Context, w WorkerConfig) *exec.Cmd
	// Screen shows what happens.
	Screen *Screen
}

// limit is when a demo that goes on is given up.
const limit = time.Minute

// MaxLease leaves time to go on when the lock of the killed worker has ended.
const MaxLease = limit / 2

// controls is how many rounds without the lock may pass without a lost update.
const controls = 5

var (
	// ErrLostUpdate: the counter misses increments that were made under the lock.
	ErrLostUpdate = errors.New("demo: updates were lost under the lock")
	// ErrNoRace: without the lock nothing was lost, so the demo proves nothing.
	ErrNoRace = errors.New("demo: no update was lost without the lock")
	// ErrOutput: nobody sees the demo, because the screen cannot be written. It wraps why.
	ErrOutput = errors.New("demo: cannot show what happens")
)

// Run runs the demo. It is an error if an update was lost under the lock, or none
// without.
func Run(ctx context.Context, cfg Config) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("demo: not finished after %v", limit))
	defer cancel()
	ctx, blind := context.WithCancelCause(ctx)
	defer blind(nil)
	cfg.Screen.failed = blind
	defer func() {
		if err != nil && ctx.Err() != nil { // which made fail whatever noticed it first
			err = context.Cause(ctx)
		}
	}()
	where := "the server"
	if cfg.URL == "" {
		server, err := embedded.Start("")
		if err != nil {
			return err
		}
		defer server.Close()
		// It is there, however long a busy machine takes for the connections.
		cfg.URL, where = server.URL()+"?dial_timeout=30s", "the embedded server"
	}
	if cfg.Parse == nil {
		cfg.Parse = engine.ParseURL
	}
	server, err := cfg.Parse(cfg.URL)
	if err != nil {
		return err
	}
	c, err := openCounter(ctx, server, "pawl-demo:"+rand.Text())
	if err != nil {
		return err
	}
	defer c.close()
	defer c.remove(ctx)
	cfg.Screen.say("%d processes add to a counter on %s (%s); each reads it, waits a moment, and writes it.",
		cfg.Workers, where, serverconfig.Server(server))
	if err := guarded(ctx, cfg, c); err != nil {
		return err
	}
	return control(ctx, cfg, c)
}

// guarded is the round with the lock, in which one worker is killed.
func guarded(ctx context.Context, cfg Config, c *counter) error {
	cfg.Screen.say("\nWith the lock:")
	r := newRound(cfg, c.key)
	r.victim, r.unlocked = true, cfg.WithoutLock
	if err := r.run(ctx); err != nil {
		return err
	}
	value, err := c.take(ctx)
	if err != nil {
		return err
	}
	cfg.Screen.say("  %d increments completed, the counter says %d", r.done, value)
	if value != r.done {
		return fmt.Errorf("%w: %d increments completed, but the counter says %d", ErrLostUpdate, r.done, value)
	}
	return nil
}

// control repeats the round without the lock until an update is lost.
func control(ctx context.Context, cfg Config, c *counter) error {
	cfg.Screen.say("\nWithout the lock:")
	for range controls {
		r := newRound(cfg, c.key)
		r.unlocked = true
		if err := r.run(ctx); err != nil {
			return err
		}
		value, err := c.take(ctx)
		if err != nil {
			return err
		}
		cfg.Screen.say("  %d increments completed, the counter says %d: %d lost", r.done, value, r.done-value)
		if value < r.done {
			cfg.Screen.say("\nNothing was lost with the lock, and much without.")
			return nil
		}
	}
	return fmt.Errorf("%w in %d rounds: the check would not have noticed a missing lock; try more --increments", ErrNoRace, controls)
}
