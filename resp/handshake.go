package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"

	"github.com/pawl-lock/pawl/resp/internal/reply"
	"github.com/pawl-lock/pawl/resp/internal/topology"
	"github.com/pawl-lock/pawl/resp/wire"
)

// step is one command of the handshake. All of them go out in one write.
type step struct {
	name  string // for error texts: what the user would have to look at
	words []string
	// secret is cut out of the server's answer.
	secret string
	// optional steps may be refused.
	optional bool
	// accept, if set, judges an answer that is no error.
	accept func(Value) error
}

// handshakeSteps lists the commands that make a fresh connection usable as role.
func (c *Config) handshakeSteps(ctx context.Context, role Role) ([]step, error) {
	user, password := c.Username, c.Password
	if c.Credentials != nil {
		var err error
		if user, password, err = c.Credentials(ctx); err != nil {
			return nil, fmt.Errorf("resp: credentials for %s: %w", c.Addr, err)
		}
	}
	var steps []step
	switch {
	case user != "":
		steps = append(steps, step{name: "AUTH", words: []string{"AUTH", user, password}, secret: password})
	case password != "":
		steps = append(steps, step{name: "AUTH", words: []string{"AUTH", password}, secret: password})
	}
	if c.DB != 0 {
		steps = append(steps, step{name: "SELECT", words: []string{"SELECT", strconv.Itoa(c.DB)}})
	}
	// Names are for people who read CLIENT LIST; SETINFO is unknown before 7.2.
	steps = append(steps,
		step{name: "CLIENT", words: []string{"CLIENT", "SETNAME", c.ClientName}, optional: true},
		step{name: "CLIENT", words: []string{"CLIENT", "SETINFO", "LIB-NAME", "pawl"}, optional: true},
		step{name: "CLIENT", words: []string{"CLIENT", "SETINFO", "LIB-VER", libVersion()}, optional: true})
	if role != RolePubSub && role != roleScout {
		for _, s := range c.Scripts {
			steps = append(steps, step{name: "SCRIPT LOAD", words: []string{"SCRIPT", "LOAD", s}})
		}
	}
	if role != roleScout && (c.Topology == Sentinel || c.Topology == Replicas) {
		// An address may lead to a server that has been demoted since.
		steps = append(steps, step{name: "ROLE", words: []string{"ROLE"}, accept: topology.IsPrimary})
	}
	if role == RoleLane {
		steps = append(steps, step{name: "HELLO", words: []string{"HELLO", "2"}, optional: true, accept: c.acquainted})
	}
	if role == roleScout && c.Topology == Replicas {
		return steps, nil // a server that loads its data says what its ROLE is, and refuses PING
	}
	// The others may all be optional; this one tells whether the server serves us:
	// NOAUTH, LOADING, MASTERDOWN and BUSY show here at the latest.
	return append(steps, step{name: "PING", words: []string{"PING"}}), nil
}

// handshake sends the steps and reads exactly their replies. The caller sets
// the deadline and closes conn on error.
func handshake(conn net.Conn, steps []step) error {
	var out []byte
	for _, s := range steps {
		out = wire.AppendCommand(out, s.words...)
	}
	// A server that refuses the connection itself (protected mode, maxclients)
	// answers once and closes: its answer is read even if the write failed.
	_, writeErr := conn.Write(out)

	in := reply.NewStream(conn, 4<<10)
	strange := false
	for _, s := range steps {
		v, err := in.Next()
		if err != nil {
			return closedInHandshake(s, err, writeErr)
		}
		if err := s.check(v); err != nil {
			return err
		}
		strange = strange || s.name == "HELLO" && isUnknownCommand(v)
	}
	if strange {
		if err := checkVersion(&in); err != nil {
			return err
		}
	}
	if n := in.Unread(); n > 0 {
		return fmt.Errorf("%w: %d bytes after the last reply of the handshake; check that nothing stands between client and server",
			ErrProtocol, n)
	}
	return writeErr
}

func closedInHandshake(s step, readErr, writeErr error) error {
	if errors.Is(readErr, ErrProtocol) {
		return readErr
	}
	if writeErr != nil && !distrusted(readErr) { // a TLS alert says more than the reset behind it
		readErr = writeErr
	}
	if errors.Is(readErr, io.EOF) {
		return fmt.Errorf("the server closed the connection before it answered %s; check the port, and whether it expects TLS: %w",
			s.name, io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("no answer to %s: %w", s.name, readErr)
}

// check judges the reply to s.
func (s step) check(v Value) error {
	switch {
	case v.Kind == wire.KindError:
		return s.refused(v)
	case s.accept != nil:
		return s.accept(v)
	case v.Kind == wire.KindArray:
		// Our own words: an echo service, or a connection to itself, which is what
		// dialling a free port of this machine from that port makes.
		return fmt.Errorf("%w: %s was answered with an array; check that a Redis server listens there, and nothing that echoes",
			ErrProtocol, s.name)
	case s.name == "PING" && string(v.Bytes) != "PONG":
		return fmt.Errorf("%w: PING was not answered with PONG; check that nothing stands between client and server", ErrProtocol)
	}
	return nil
}

// refused judges the error v, the reply to s; nil if one can live with it.
func (s step) refused(v Value) error {
	e := wire.NewServerError(v.Bytes)
	// "unknown command" quotes the arguments, cut at any length: a password, or a script.
	e.Message, _, _ = strings.Cut(e.Message, ", with args")
	switch {
	case strings.HasPrefix(e.Message, "ERR max number of clients"), e.Code == "DENIED":
		// The answer to the connection, not to the step; DENIED is protected mode.
	case s.optional:
		return nil
	case e.Code == "NOPERM" && (s.name == "PING" || s.name == "SCRIPT LOAD"):
		// The server is there; a script that is not loaded is sent whole.
		return nil
	case s.name == "AUTH" && len(s.words) == 3 && strings.HasPrefix(e.Message, "ERR wrong number of arguments"):
		return fmt.Errorf("%s with a user refused: %w (%w)", s.name, e, ErrTooOld)
	case s.name == "SCRIPT LOAD" && strings.HasPrefix(e.Message, "ERR unknown command"):
		return fmt.Errorf("%s refused: %w; if this is a sentinel, say so: redis+sentinel://host:port/master", s.name, e)
	case s.name == "AUTH":
		if s.secret != "" {
			e.Message = strings.ReplaceAll(e.Message, s.secret, "***")
		}
	}
	return fmt.Errorf("%s refused: %w", s.name, e)
}

// unauthorized reports whether err is a server's refusal of the credentials, or of what
// their user may do.
func unauthorized(err error) bool {
	var e *ServerError
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case "WRONGPASS", "NOAUTH", "NOPERM":
		return true
	}
	return e.Begins(
		"ERR invalid password",               // before Redis 6
		"ERR AUTH <password> called without", // a password for a server without one
		"ERR Client sent AUTH, but no",       // the same, before Redis 6
	)
}

// lasting reports whether err will stay until somebody changes the
// configuration of the client or of the server.
func lasting(err error) bool {
	var e *ServerError
	switch {
	case errors.Is(err, ErrTooOld):
		return true
	case !errors.As(err, &e):
		return distrusted(err)
	case e.Begins("ERR No such master with that name"):
		return !errors.As(err, new(*topology.NotYet)) // another sentinel knows it
	}
	return unauthorized(err) || e.Code == "DENIED" || e.Begins(
		"ERR unknown command",          // AUTH or SELECT renamed away
		"ERR invalid DB index",         //
		"ERR DB index is out of range", //
		"ERR SELECT is not allowed",    // a cluster
		"ERR Error compiling script",   // a script of ours
		"ERR This instance has cluster support disabled",
	)
}

// distrusted reports whether one of the two sides does not accept the other's
// certificate, or its ways with TLS altogether.
func distrusted(err error) bool {
	if errors.As(err, new(*tls.CertificateVerificationError)) {
		return true
	}
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error" // a TLS alert; crypto/tls exports no more of it
}

// libVersion is the version of this module in the running binary, as a word
// that CLIENT SETINFO accepts.
var libVersion = sync.OnceValue(func() string {
	const path = "github.com/pawl-lock/pawl"
	if info, ok := debug.ReadBuildInfo(); ok {
		mods := append([]*debug.Module{&info.Main}, info.Deps...)
		for _, m := range mods {
			if m.Path == path && strings.HasPrefix(m.Version, "v") {
				return m.Version[1:]
			}
		}
	}
	return "devel"
})
