package greet

import (
	"context"
	"fmt"

	"github.com/pawl-lock/pawl/resp/internal/reply"
	"github.com/pawl-lock/pawl/resp/internal/socket"
	"github.com/pawl-lock/pawl/resp/wire"
)

// Ask makes a new connection, has one question answered, and ends it. An error reply is an
// answer. It blocks, for twice DialTimeout at most; ctx ends it at once.
func (c *Config) Ask(ctx context.Context, question ...string) (wire.Value, error) {
	conn, err := c.Connect(ctx, Scouting)
	if err != nil {
		return wire.Value{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.DialTimeout)
	defer cancel()
	// Not the Close of TLS, which waits for a last write of its own.
	stop := context.AfterFunc(ctx, func() { socket.BelowTLS(conn).Close() })
	defer func() {
		if stop() {
			socket.BelowTLS(conn).Close()
		}
	}()
	if _, err := conn.Write(wire.AppendCommand(nil, question...)); err != nil {
		return wire.Value{}, fmt.Errorf("resp: %s with %s: %w", question[0], c.Addr, err)
	}
	in := reply.NewStream(conn, 0)
	v, err := in.Next()
	if err != nil {
		return wire.Value{}, fmt.Errorf("resp: no answer to %s from %s: %w", question[0], c.Addr, err)
	}
	return v.Clone(), nil
}
