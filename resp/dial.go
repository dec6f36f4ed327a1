package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// keepAlive finds a dead peer on connections that nobody else watches, such as
// one that hangs in its handshake. Live connections have their PING.
var keepAlive = net.KeepAliveConfig{
	Enable:   true,
	Idle:     15 * time.Second,
	Interval: 5 * time.Second,
	Count:    3,
}

// connect dials and does the handshake for role, both within DialTimeout. It
// blocks; ctx ends it at once. No byte of the connection is left unread. A server that
// has just refused the credentials is not dialled: it refuses still.
func (c *Config) connect(ctx context.Context, role Role) (net.Conn, error) {
	began := c.Clock.Now()
	if err := c.refusals.check(c.Addr, role); err != nil {
		return nil, err
	}
	conn, err := c.greet(ctx, role)
	if err == nil || ctx.Err() == nil { // an attempt that was called off says nothing
		c.refusals.note(c.Addr, role, began, err)
	}
	return conn, err
}

func (c *Config) greet(ctx context.Context, role Role) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.DialTimeout,
		fmt.Errorf("resp: no connection within DialTimeout (%v)", c.DialTimeout))
	defer cancel()

	steps, err := c.handshakeSteps(ctx, role)
	if err != nil {
		return nil, err
	}
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, c.connectError(ctx, "dial", err)
	}
	if conn, err = c.secure(ctx, conn); err != nil {
		return nil, c.connectError(ctx, tlsHandshake, err)
	}
	// The deadline is ctx's: a net.Conn knows only instants of the wall clock.
	stop := context.AfterFunc(ctx, func() {
		if conn.SetDeadline(time.Unix(1, 0)) != nil {
			conn.Close() // it has no deadlines: the dialer's, an SSH tunnel for instance
		}
	})
	err = handshake(conn, steps)
	if !stop() && err == nil {
		err = context.Cause(ctx) // the deadline is set, or about to be
	}
	if err != nil {
		conn.Close()
		return nil, c.connectError(ctx, "handshake", err)
	}
	return conn, nil
}

// dial opens the connection, without TLS.
func (c *Config) dial(ctx context.Context) (net.Conn, error) {
	open := c.Dialer
	if open == nil {
		open = (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext
	}
	conn, err := open(ctx, c.Network, c.Addr)
	if err == nil && conn == nil {
		err = errors.New("Config.Dialer returned neither a connection nor an error")
	}
	return conn, err
}

const tlsHandshake = "TLS handshake"

// secure puts TLS on conn, if it is configured.
func (c *Config) secure(ctx context.Context, conn net.Conn) (net.Conn, error) {
	if c.TLS == nil {
		return conn, nil
	}
	secure := tls.Client(conn, c.tlsConfig())
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secure, nil
}

// tlsConfig is TLS with the name of the server, which goes into the handshake (SNI) though
// it may not be verified: gateways tell servers apart by it.
func (c *Config) tlsConfig() *tls.Config {
	if c.TLS.ServerName != "" || c.Network == "unix" && c.TLS.InsecureSkipVerify {
		return c.TLS
	}
	cfg := c.TLS.Clone()
	var err error
	if cfg.ServerName, _, err = net.SplitHostPort(c.Addr); err != nil {
		cfg.ServerName = c.Addr
	}
	return cfg
}

// connectError says which address failed, and replaces the "i/o timeout" that
// the end of ctx looks like by its cause.
func (c *Config) connectError(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if what == tlsHandshake && ctx.Err() == context.DeadlineExceeded {
		// A server without TLS waits for the end of the line that it takes our hello for.
		err = fmt.Errorf("%w; check that the server speaks TLS on this port", err)
	}
	return &connectError{what: what, addr: c.Addr, err: err}
}

// connectError is a failed attempt to connect: at what, to whom, and why.
type connectError struct {
	what, addr string
	err        error
}

func (e *connectError) Error() string {
	why := e.err
	if op, ok := why.(*net.OpError); ok && op.Op == "dial" {
		why = op.Err // its own text has the address, too
	}
	text := strings.TrimPrefix(why.Error(), "resp: ")
	if e.what == "dial" {
		return fmt.Sprintf("resp: dial %s: %s", e.addr, text)
	}
	return fmt.Sprintf("resp: %s with %s: %s", e.what, e.addr, text)
}

func (e *connectError) Unwrap() error { return e.err }
