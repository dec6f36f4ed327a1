package handshake

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/resp/internal/topology"
	"github.com/pawl-lock/pawl/resp/wire"
)

// ErrTLSMismatch means that one side speaks TLS on a port and the other does not.
var ErrTLSMismatch = errors.New("resp: client and server do not agree on TLS")

const (
	tlsHandshake = "TLS handshake"
	// suspicion is how long a server may take over the TLS handshake before it is asked whether
	// it speaks plain RESP on this port.
	suspicion = 500 * time.Millisecond
	// probePatience is how long a server has to show whether it speaks TLS.
	probePatience = 300 * time.Millisecond
)

// secure puts TLS on conn, if it is configured. A server without TLS takes the client's hello
// for the beginning of a line and is silent. So after a while it is asked in plain, on a
// connection of its own, which carries no secret. The answer only makes the attempt fail
// sooner: the client never goes on without TLS.
func (c *Config) secure(ctx context.Context, conn net.Conn) (net.Conn, error) {
	if c.TLS == nil {
		return conn, nil
	}
	cfg, err := c.tlsConfig()
	if err != nil {
		conn.Close()
		return nil, err
	}
	shaking, give := context.WithCancelCause(ctx)
	asked := make(chan struct{})
	suspect := time.AfterFunc(suspicion, func() {
		defer close(asked)
		if c.answersInPlain(shaking) {
			give(ErrTLSMismatch)
		}
	})
	secure := tls.Client(conn, cfg)
	err = secure.HandshakeContext(shaking)
	if cause := context.Cause(shaking); err != nil && errors.Is(cause, ErrTLSMismatch) {
		err = cause
	}
	give(nil)
	if !suspect.Stop() {
		<-asked
	}
	if err == nil {
		return secure, nil
	}
	conn.Close()
	if c.notTLS(ctx, err) {
		return nil, c.mismatch(err)
	}
	return nil, err
}

// notTLS reports whether a TLS handshake failed with err because the server speaks none.
func (c *Config) notTLS(ctx context.Context, err error) bool {
	var header tls.RecordHeaderError
	switch {
	case errors.Is(err, ErrTLSMismatch):
		return true
	case errors.As(err, &header):
		return header.RecordHeader[0] < 20 || header.RecordHeader[0] > 23 // what it said is no record at all
	}
	return closedUnheard(err) && ctx.Err() == nil && c.answersInPlain(ctx)
}

// wantsTLS reports whether the handshake without TLS failed with err because the server expects
// TLS. Most servers only close the connection then, as a proxy does that has lost its server;
// so they are shown a client's hello.
func (c *Config) wantsTLS(ctx context.Context, err error) bool {
	return c.TLS == nil && closedUnheard(err) && ctx.Err() == nil && c.answersInTLS(ctx)
}

// closedUnheard reports whether err is that of a connection that ended before a server
// answered, or got bytes that are no answer.
func closedUnheard(err error) bool {
	if distrusted(err) {
		return false
	}
	return errors.As(err, new(*net.OpError)) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, wire.ErrProtocol)
}

// answersInPlain reports whether the server answers a PING without TLS.
func (c *Config) answersInPlain(ctx context.Context) bool {
	first := c.probe(ctx, func(conn net.Conn) { _, _ = conn.Write(wire.AppendCommand(nil, "PING")) })
	return len(first) > 0 && (first[0] == '+' || first[0] == '-')
}

// answersInTLS reports whether the server answers the hello of a TLS client. Nothing is sent
// after the hello, so nothing has to be verified.
func (c *Config) answersInTLS(ctx context.Context) bool {
	host, _, _ := net.SplitHostPort(c.Addr)
	return isTLSServer(c.probe(ctx, func(conn net.Conn) {
		_ = tls.Client(helloOnly{conn}, &tls.Config{ServerName: cmp.Or(host, "localhost")}).Handshake()
	}))
}

// helloOnly is a connection for the first message of a TLS client.
type helloOnly struct{ net.Conn }

func (helloOnly) Read([]byte) (int, error) { return 0, io.EOF }

// isTLSServer reports whether a server that has TLS says b at first: an alert, or the record of a
// ServerHello. An echo of the hello is none.
func isTLSServer(b []byte) bool {
	return len(b) == probed && b[1] == 3 && (b[0] == 21 || b[0] == 22 && b[5] == 2)
}

// probed is how many bytes of an answer a probe looks at.
const probed = 6

// probe makes a connection of its own, says something and returns the first bytes of the answer.
func (c *Config) probe(ctx context.Context, say func(net.Conn)) []byte {
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	conn, err := c.dial(ctx)
	if err != nil {
		return nil
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	say(conn)
	first := make([]byte, probed)
	n, _ := io.ReadFull(conn, first)
	return first[:n]
}

// mismatch is the error that says which side does not take part in TLS, and what to write.
func (c *Config) mismatch(err error) error {
	suffix := "://"
	if c.Kind != topology.Standalone {
		suffix = "+" + [...]string{topology.Cluster: "cluster", topology.Sentinel: "sentinel", topology.Replicas: "replicas"}[c.Kind] + suffix
	}
	text := "the server speaks TLS on this port: connect with rediss" + suffix + " (Config.TLS)"
	switch {
	case c.Sentinel && c.TLS == nil:
		text = "this sentinel speaks TLS on this port: set sentinel_tls=on (Config.SentinelTLS), or connect with rediss" + suffix + " if the servers speak TLS, too"
	case c.Sentinel:
		text = "this sentinel does not speak TLS on this port: set sentinel_tls=off (Config.SentinelTLS: NoTLS), or name its TLS port"
	case c.TLS != nil:
		text = "the server does not speak TLS on this port: connect with redis" + suffix + ", or name its TLS port"
	}
	if c.Kind == topology.Sentinel && !c.Sentinel {
		text += "; where only servers or only sentinels speak TLS, sentinel_tls=on or off says so of the sentinels"
	}
	return &mismatchError{text, err}
}

type mismatchError struct {
	text string
	err  error
}

func (e *mismatchError) Error() string   { return e.text }
func (e *mismatchError) Unwrap() []error { return []error{ErrTLSMismatch, e.err} }

// tlsConfig is TLS with the name of the server, which goes into the handshake (SNI) though
// it may not be verified: gateways tell servers apart by it. Certificates that are replaced
// on disk come from RefreshTLS. What is verified, and how, stays crypto/tls's own.
func (c *Config) tlsConfig() (*tls.Config, error) {
	cfg := c.TLS.Clone()
	if cfg.ServerName == "" && (c.Network != "unix" || !cfg.InsecureSkipVerify) {
		var err error
		if cfg.ServerName, _, err = net.SplitHostPort(c.Addr); err != nil {
			cfg.ServerName = c.Addr
		}
	}
	cfg.ServerName, _, _ = strings.Cut(cfg.ServerName, "%") // the zone of an IPv6 address is this machine's
	if c.RefreshTLS != nil {
		if err := c.RefreshTLS(cfg); err != nil {
			return nil, err
		}
	}
	return cfg, nil
}
