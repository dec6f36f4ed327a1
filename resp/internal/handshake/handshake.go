package handshake

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/pawl-lock/pawl/resp/internal/replyreader"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/wire"
)

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

	in := replyreader.NewStream(conn, 4<<10)
	var strange bool    // HELLO is unknown
	var notLoaded error // a script
	var meet func() error
	for _, s := range steps {
		v, err := in.Next()
		if err != nil {
			return closedInHandshake(s, err, writeErr)
		}
		switch err := s.check(v); {
		case err != nil && s.dispensable(err):
			notLoaded = err
		case err != nil:
			return err
		}
		if s.meet != nil {
			answer := v.Clone()
			meet = func() error { return s.meet(&in, answer) }
		}
		strange = strange || s.name == "HELLO" && isUnknownCommand(v)
	}
	if strange {
		if err := checkVersion(&in); err != nil {
			return err
		}
	}
	if notLoaded != nil {
		if err := checkScripts(&in, notLoaded); err != nil {
			return err
		}
	}
	if meet != nil {
		if err := meet(); err != nil {
			return err
		}
	}
	if n := in.Unread(); n > 0 {
		return fmt.Errorf("%w: %d bytes after the last reply of the handshake; check that nothing stands between client and server",
			wire.ErrProtocol, n)
	}
	return writeErr
}

func closedInHandshake(s step, readErr, writeErr error) error {
	if errors.Is(readErr, wire.ErrProtocol) {
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
func (s step) check(v wire.Value) error {
	switch {
	case v.Kind == wire.KindError:
		return s.refused(v)
	case s.accept != nil:
		return s.accept(v)
	case s.meet != nil:
		return nil
	case v.Kind == wire.KindArray:
		// Our own words: an echo service, or a connection to itself, which is what
		// dialling a free port of this machine from that port makes.
		return fmt.Errorf("%w: %s was answered with an array; check that a Redis server listens there, and nothing that echoes",
			wire.ErrProtocol, s.name)
	case s.name == "PING" && string(v.Bytes) != "PONG":
		return fmt.Errorf("%w: PING was not answered with PONG; check that nothing stands between client and server", wire.ErrProtocol)
	}
	return nil
}

// refused judges the error v, the reply to s; nil if one can live with it.
func (s step) refused(v wire.Value) error {
	e := wire.NewServerError(v.Bytes)
	// "unknown command" quotes the arguments, cut at any length: a password, or a script.
	e.Message, _, _ = strings.Cut(e.Message, ", with args")
	r := request.RefusalOf(e)
	switch {
	case r.Of == request.OfConnection && r.Lasts != request.Unauthorized:
		// The answer to the connection, not to the step: it is one too many, or protected mode.
	case s.optional:
		return nil
	case r.Forbidden() && (s.name == "PING" || s.name == "SCRIPT LOAD"):
		// The server is there; a script that is not loaded is sent whole.
		return nil
	case s.name == "AUTH" && len(s.words) == 3 && request.WrongArity(e):
		return fmt.Errorf("%s with a user refused: %w (%w)", s.name, e, ErrTooOld)
	case s.name == "SCRIPT LOAD" && request.UnknownCommand(e):
		return fmt.Errorf("%s refused: %w; if this is a sentinel, say so: redis+sentinel://host:port/master", s.name, e)
	case s.name == "AUTH":
		if s.secret != "" {
			e.Message = strings.ReplaceAll(e.Message, s.secret, "***")
		}
	}
	return fmt.Errorf("%s refused: %w", s.name, e)
}

// dispensable reports whether one may do without s, which was refused: a script that is not loaded is
// sent whole, unless it is no Lua.
func (s step) dispensable(err error) bool {
	var e *wire.ServerError
	return s.name == "SCRIPT LOAD" && errors.As(err, &e) && request.RefusalOf(e).Of == request.OfCommand && !request.NotCompiled(e)
}

// checkScripts asks a server that has not loaded a script whether it runs scripts at all. One that
// does not know EVAL, such as a sentinel, is of no use, for the reason why. (With a key, as proxies want.)
func checkScripts(r *replyreader.Stream, why error) error {
	if _, err := r.Conn.Write(wire.AppendCommand(nil, "EVAL", "return 1", "1", "pawl")); err != nil {
		return err
	}
	v, err := r.Next()
	if err != nil {
		return fmt.Errorf("no answer to EVAL: %w", err)
	}
	if v.Kind == wire.KindError && request.UnknownCommand(wire.NewServerError(v.Bytes)) {
		return why
	}
	return nil
}
