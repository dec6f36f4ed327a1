package greet

import (
	"crypto/tls"
	"errors"
	"net"

	"github.com/pawl-lock/pawl/resp/internal/topology"
	"github.com/pawl-lock/pawl/resp/wire"
)

// ErrTooOld means that the server's version is not supported.
var ErrTooOld = errors.New("resp: the server is too old; use Redis 6.0 or later, or Valkey")

// Unauthorized reports whether err is a server's refusal of the credentials, or of what
// their user may do.
func Unauthorized(err error) bool {
	var e *wire.ServerError
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

// Lasting reports whether err will stay until somebody changes the
// configuration of the client or of the server.
func Lasting(err error) bool {
	var e *wire.ServerError
	switch {
	case errors.Is(err, ErrTooOld):
		return true
	case !errors.As(err, &e):
		return distrusted(err)
	case e.Begins("ERR No such master with that name"):
		return !errors.As(err, new(*topology.NotYet)) // another sentinel knows it
	}
	return Unauthorized(err) || e.Code == "DENIED" || e.Begins(
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
