package handshake

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/topology"
)

// Purpose is what a connection is for.
type Purpose uint8

const (
	// Commands of users, or of Renewals, which have a connection of their own.
	Commands Purpose = iota
	Renewals
	// Messages: subscriptions.
	Messages
	// Durable are commands that replicas must acknowledge, DurableRenewals such renewals.
	Durable
	DurableRenewals
	// Probing is to ask a few questions about the deployment.
	Probing
)

// Config says how a server is reached, and what is sent to it. Its fields are those of resp.Config,
// with their defaults.
type Config struct {
	Kind               topology.Kind // what the server belongs to
	Network, Addr      string
	TLS                *tls.Config
	Username, Password string
	Credentials        func(ctx context.Context) (username, password string, err error)
	DB                 int
	ClientName         string
	Dialer             func(ctx context.Context, network, addr string) (net.Conn, error)
	DialTimeout        time.Duration
	Scripts            []string
	Identity           *topology.Identity // whom servers must belong to; nil: to anybody
	Clock              clock.Clock
	Logger             *slog.Logger
	AuthBackoff        *AuthBackoff // of all connections of a Client
	// RefreshTLS, if set, changes a copy of TLS before each handshake.
	RefreshTLS func(*tls.Config) error
	Sentinel   bool // the server is a sentinel
}

// keepAlive finds a dead peer on connections that nobody else watches, such as
// one that hangs in its handshake. Live connections have their PING.
var keepAlive = net.KeepAliveConfig{
	Enable:   true,
	Idle:     15 * time.Second,
	Interval: 5 * time.Second,
	Count:    3,
}

// Connect dials and does the handshake for a purpose, both within DialTimeout. It
// blocks; ctx ends it at once. No byte of the connection is left unread. A server that
// has just refused the same credentials is not dialled: it refuses still.
func (c *Config) Connect(ctx context.Context, p Purpose) (net.Conn, error) {
	began := c.Clock.Now()
	if err := c.AuthBackoff.Ask(c.Addr, p); err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, c.DialTimeout,
		fmt.Errorf("resp: no connection within DialTimeout (%v)", c.DialTimeout))
	defer cancel()
	user, password, err := c.credentials(bounded)
	if err != nil {
		return nil, err // it says nothing of the server
	}
	given := CredentialsOf(user, password)
	if err := c.AuthBackoff.Check(c.Addr, p, given); err != nil {
		return nil, err
	}
	conn, err := c.attempt(bounded, p, user, password)
	if err == nil || ctx.Err() == nil { // an attempt that was called off says nothing
		c.AuthBackoff.Note(c.Addr, p, given, began, err)
	}
	return conn, err
}

func (c *Config) attempt(ctx context.Context, p Purpose, user, password string) (net.Conn, error) {
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
	err = handshake(conn, c.steps(p, user, password))
	if !stop() && err == nil {
		err = context.Cause(ctx) // the deadline is set, or about to be
	}
	if err != nil {
		conn.Close()
		if c.wantsTLS(ctx, err) {
			err = c.mismatch(err)
		}
		return nil, c.connectError(ctx, "handshake", err)
	}
	return conn, nil
}

// credentials are those that go into AUTH.
func (c *Config) credentials(ctx context.Context) (user, password string, err error) {
	if c.Credentials == nil {
		return c.Username, c.Password, nil
	}
	if user, password, err = c.Credentials(ctx); err != nil {
		return "", "", fmt.Errorf("resp: credentials for %s: %w", c.Addr, err)
	}
	return user, password, nil
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

// connectError says which address failed, and replaces the "i/o timeout" that
// the end of ctx looks like by its cause.
func (c *Config) connectError(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil && !errors.Is(err, ErrTLSMismatch) {
		err = context.Cause(ctx)
		if what == tlsHandshake && ctx.Err() == context.DeadlineExceeded {
			err = fmt.Errorf("%w; check that the server speaks TLS on this port", err)
		}
	}
	addr := c.Addr
	if c.Sentinel {
		addr = "sentinel " + addr
	}
	return &connectError{what: what, addr: addr, err: err}
}

var (
	// ErrDial means that an address could not be dialled: no connection came about.
	ErrDial = errors.New("resp: cannot dial")
	// ErrHandshake means that a connection came about, and the handshake failed.
	ErrHandshake = errors.New("resp: the handshake failed")
)

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

func (e *connectError) Is(target error) bool {
	if e.what == "dial" {
		return target == ErrDial
	}
	return target == ErrHandshake
}
