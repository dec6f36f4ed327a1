package handshake

import (
	"context"
	"fmt"

	"github.com/pawl-lock/pawl/resp/internal/replyreader"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/socket"
	"github.com/pawl-lock/pawl/resp/wire"
)

// Question is the part of a Request that goes to the server.
type Question interface {
	AppendCommand(dst []byte, form request.ScriptForm) []byte
}

// Ask makes a new connection, has one question answered, and ends it. An error reply is an
// answer. It blocks, for twice DialTimeout at most; ctx ends it at once.
func (c *Config) Ask(ctx context.Context, q Question) (wire.Value, error) {
	conn, err := c.Connect(ctx, Probing)
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
	in := replyreader.NewStream(conn, 0)
	ask := func(form request.ScriptForm) (v wire.Value, err error) {
		if _, err = conn.Write(q.AppendCommand(nil, form)); err == nil {
			v, err = in.Next()
		}
		return v, err
	}
	v, err := ask(request.EvalSHA)
	if err == nil && v.Kind == wire.KindError && !request.RefusalOf(wire.NewServerError(v.Bytes)).NotNow() {
		v, err = ask(request.Eval) // the server does not know the script, or none by its name
	}
	if err != nil {
		return wire.Value{}, fmt.Errorf("resp: a question to %s: %w", c.Addr, err)
	}
	return v.Clone(), nil
}
