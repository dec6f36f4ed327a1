package resp

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/reply"
	"github.com/pawl-lock/pawl/resp/internal/socket"
	"github.com/pawl-lock/pawl/resp/wire"
)

// scout is a connection to one server.
type scout struct {
	key    scoutKey
	cfg    Config
	cancel context.CancelFunc // of connecting
	ready  chan struct{}      // closed when connecting has ended
	in     reply.Stream
	err    error
	since  clock.Instant
	used   bool // it has answered before
}

// connected reports whether connecting has ended, with s.mu held.
func (k *scout) connected() bool {
	select {
	case <-k.ready:
		return true
	default:
		return false
	}
}

// ask sends a question and reads the answer. After an error the connection is of no use.
func (k *scout) ask(ctx context.Context, question []string) (Value, error) {
	conn := k.in.Conn
	stop := context.AfterFunc(ctx, func() { hangUp(conn) })
	defer stop()
	if k.in.Unread() > 0 {
		return Value{}, fmt.Errorf("%w: %d bytes that nobody asked for", ErrProtocol, k.in.Unread())
	}
	if _, err := conn.Write(wire.AppendCommand(nil, question...)); err != nil {
		return Value{}, err
	}
	v, err := k.in.Next()
	if err != nil {
		return Value{}, err
	}
	if !stop() {
		return Value{}, errors.Join(context.Cause(ctx), net.ErrClosed)
	}
	return v.Clone(), nil
}

// hangUp closes a connection at once. tls.Conn.Close would wait for a last write of its
// own.
func hangUp(conn net.Conn) { socket.BelowTLS(conn).Close() }

// isPrimary judges the answer to ROLE.
func isPrimary(v Value) error {
	if role := roleOf(v); role != "master" {
		return &notYet{fmt.Errorf("the server is no primary, its role is %q", role)}
	}
	return nil
}

// roleOf is the first word of ROLE's answer.
func roleOf(v Value) (role string) {
	v.Each(func(_ int, e Value) bool {
		role = string(e.Bytes)
		return false
	})
	return role
}
