package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
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
// blocks; ctx ends it at once. No byte of the connection is left unread.
func (c *Config) connect(ctx context.Context, role Role) (net.Conn, error) {
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

// dial opens the connection, TLS included.
func (c *Config) dial(ctx context.Context) (net.Conn, error) {
	open := c.Dialer
	if open == nil {
		open = (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext
	}
	conn, err := open(ctx, c.Network, c.Addr)
	if err == nil && conn == nil {
		err = errors.New("Config.Dialer returned neither a connection nor an error")
	}
	if err != nil || c.TLS == nil {
		return conn, err
	}
	cfg := c.TLS
	if cfg.ServerName == "" && !cfg.InsecureSkipVerify {
		cfg = cfg.Clone()
		if cfg.ServerName, _, err = net.SplitHostPort(c.Addr); err != nil {
			cfg.ServerName = c.Addr
		}
	}
	secure := tls.Client(conn, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return secure, nil
}

// connectError says which address failed, and replaces the "i/o timeout" that
// the end of ctx looks like by its cause.
func (c *Config) connectError(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("resp: %s with %s: %w", what, c.Addr, err)
}
