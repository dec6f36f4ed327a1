package demo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/serverconfig"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// keep is how long the counter lasts after a write: longer than any demo, so that the server
// removes it if the demo could not, because it was killed for example.
const keep = 2 * limit

// counter is a number on the server, read and written with plain commands.
type counter struct {
	client *resp.Client
	key    string
}

// openCounter connects, over connections that the engine has no part in.
func openCounter(ctx context.Context, server engine.Config, key string) (*counter, error) {
	cfg := serverconfig.Config(server)
	cfg.ClientName, cfg.Lanes = "pawl-demo", 1
	client := resp.Open(cfg)
	timeout := server.DialTimeout
	if timeout == 0 {
		timeout = connectTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("tried for %v", timeout))
	defer cancel()
	if err := client.WaitFirst(ctx); err != nil {
		client.Close()
		return nil, fmt.Errorf("%s: %w: %w", serverconfig.Server(server), engine.ErrUnavailable, err)
	}
	return &counter{client: client, key: key}, nil
}

func (c *counter) close() { _ = c.client.Close() }

// ask sends one command. A server that does not answer is unavailable, as it is for a lock.
func (c *counter) ask(ctx context.Context, words ...string) (resp.Value, error) {
	v, err := c.client.Do(ctx, words...)
	if away := errors.Is(err, resp.ErrNotSent) || errors.Is(err, resp.ErrOutcomeUnknown); away && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
	}
	return v, err
}

func (c *counter) read(ctx context.Context) (int, error) {
	v, err := c.ask(ctx, "GET", c.key)
	if err != nil {
		return 0, fmt.Errorf("demo: read the counter: %w", err)
	}
	if v.Kind == wire.KindNil {
		return 0, nil
	}
	n, err := strconv.Atoi(string(v.Bytes))
	if err != nil {
		return 0, fmt.Errorf("demo: the counter is not a number: %w", err)
	}
	return n, nil
}

// write begins only while ctx lasts. Once sent, it is waited for, as long as the client
// waits for any answer: a worker must know whether its write counts. errUnknown says that
// this cannot be known.
func (c *counter) write(ctx context.Context, n int) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	_, err := c.ask(context.WithoutCancel(ctx), "SET", c.key, strconv.Itoa(n), "PX", strconv.FormatInt(keep.Milliseconds(), 10))
	switch {
	case errors.Is(err, resp.ErrOutcomeUnknown):
		return fmt.Errorf("%w: %w", errUnknown, err)
	case err != nil:
		return fmt.Errorf("demo: write the counter: %w", err)
	}
	return nil
}

var errUnknown = errors.New("demo: it is not known whether the counter was written")

// lockName is the name of the lock that protects a counter.
func lockName(key string) string { return key + ":lock" }

// remove leaves nothing behind, however the demo ended: also not the lock of a worker that
// was killed. There are no workers any more.
func (c *counter) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = c.ask(ctx, "DEL", c.key)
	_, _ = c.ask(ctx, "DEL", lockName(c.key))
	_, _ = c.ask(ctx, "DEL", "pawl_queue:{"+lockName(c.key)+"}") // where workers that were killed waited
}

// take reads the counter and removes it.
func (c *counter) take(ctx context.Context) (int, error) {
	n, err := c.read(ctx)
	if err != nil {
		return 0, err
	}
	if _, err := c.ask(ctx, "DEL", c.key); err != nil {
		return 0, fmt.Errorf("demo: remove the counter: %w", err)
	}
	return n, nil
}
