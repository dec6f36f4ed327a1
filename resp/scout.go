package resp

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/socket"
	"github.com/pawl-lock/pawl/resp/wire"
)

// scout is a connection to one server.
type scout struct {
	key    scoutKey
	cfg    Config
	cancel context.CancelFunc // of connecting
	ready  chan struct{}      // closed when connecting has ended
	in     replyStream
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
	conn := k.in.conn
	stop := context.AfterFunc(ctx, func() { hangUp(conn) })
	defer stop()
	if len(k.in.buf) > 0 {
		return Value{}, fmt.Errorf("%w: %d bytes that nobody asked for", ErrProtocol, len(k.in.buf))
	}
	if _, err := conn.Write(wire.AppendCommand(nil, question...)); err != nil {
		return Value{}, err
	}
	v, err := k.in.next()
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

// elements returns the elements of an array, which borrow the same bytes.
func elements(v Value) []Value {
	list := make([]Value, 0, v.Len())
	v.Each(func(_ int, e Value) bool {
		list = append(list, e)
		return true
	})
	return list
}

// field finds one in a flat list of names and values, "" if it is not there.
func field(list Value, name string) string {
	fields := elements(list)
	for i := 0; i+1 < len(fields); i += 2 {
		if string(fields[i].Bytes) == name {
			return string(fields[i+1].Bytes)
		}
	}
	return ""
}

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
