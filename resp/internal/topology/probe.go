package topology

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/replyreader"
	"github.com/pawl-lock/pawl/resp/internal/socket"
	"github.com/pawl-lock/pawl/resp/wire"
)

// probe is a connection to one server.
type probe struct {
	key    probeKey
	cancel context.CancelFunc // of connecting
	ready  chan struct{}      // closed when connecting has ended
	in     replyreader.Stream
	err    error
	since  clock.Instant
	used   bool // it has answered before
}

// connected reports whether connecting has ended, with s.mu held.
func (k *probe) connected() bool {
	select {
	case <-k.ready:
		return true
	default:
		return false
	}
}

// ask sends a question and reads the answer. After an error the connection is of no use.
func (k *probe) ask(ctx context.Context, question []string) (wire.Value, error) {
	conn := k.in.Conn
	stop := context.AfterFunc(ctx, func() { hangUp(conn) })
	defer stop()
	if k.in.Unread() > 0 {
		return wire.Value{}, fmt.Errorf("%w: %d bytes that nobody asked for", wire.ErrProtocol, k.in.Unread())
	}
	if _, err := conn.Write(wire.AppendCommand(nil, question...)); err != nil {
		return wire.Value{}, err
	}
	v, err := k.in.Next()
	if err != nil {
		return wire.Value{}, err
	}
	if !stop() {
		return wire.Value{}, errors.Join(context.Cause(ctx), net.ErrClosed)
	}
	return v.Clone(), nil
}

// hangUp closes a connection at once. tls.Conn.Close would wait for a last write of its
// own.
func hangUp(conn net.Conn) { socket.BelowTLS(conn).Close() }

// unanswered is a question that a server has not answered, or has refused.
type unanswered struct {
	question, addr string
	err            error
}

// unansweredBy is the error of a question. It replaces the "i/o timeout" that the end of ctx
// looks like by its cause.
func unansweredBy(ctx context.Context, addr, question string, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return &unanswered{question, addr, err}
}

func (e *unanswered) Error() string {
	return fmt.Sprintf("resp: %s with %s: %s", e.question, e.addr, strings.TrimPrefix(e.err.Error(), "resp: "))
}

func (e *unanswered) Unwrap() error { return e.err }

// IsPrimary judges the answer to ROLE.
func IsPrimary(v wire.Value) error {
	if role := roleOf(v); role != "master" {
		return &NotYet{fmt.Errorf("the server is no primary, its role is %q", role)}
	}
	return nil
}

// roleOf is the first word of ROLE's answer.
func roleOf(v wire.Value) (role string) {
	v.Each(func(_ int, e wire.Value) bool {
		role = string(e.Bytes)
		return false
	})
	return role
}
