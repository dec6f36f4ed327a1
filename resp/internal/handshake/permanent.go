package handshake

import (
	"crypto/tls"
	"errors"
	"net"

	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/topology"
	"github.com/pawl-lock/pawl/resp/wire"
)

// ErrTooOld means that the server's version is not supported.
var ErrTooOld = errors.New("resp: the server is too old; use Redis 6.0 or later, or Valkey")

// Unauthorized reports whether err is a server's refusal of the credentials, or of what
// their user may do.
func Unauthorized(err error) bool {
	var e *wire.ServerError
	return errors.As(err, &e) && request.RefusalOf(e).Lasts == request.Unauthorized
}

// Unclear reports whether a server refuses what it may accept once it has been set up: a
// password, before it has one.
func Unclear(err error) bool {
	var e *wire.ServerError
	return errors.As(err, &e) && request.RefusalOf(e).Lasts == request.Unclear
}

// Lasting reports whether err will stay until somebody changes the
// configuration of the client or of the server, as far as can be known.
func Lasting(err error) bool { return lasts(err) >= request.Unclear }

// Permanent reports whether err is Lasting, and neither a refusal of credentials, which AuthBackoff
// pace, nor one that may pass: nothing is gained by trying often.
func Permanent(err error) bool { return lasts(err) == request.Permanent }

// lasts is how long what keeps a connection from being made does.
func lasts(err error) request.Duration {
	var e *wire.ServerError
	switch {
	case errors.Is(err, ErrTooOld):
		return request.Permanent
	case errors.As(err, &e):
		r := request.RefusalOf(e)
		if r.Of == request.OfDeployment && errors.As(err, new(*topology.NotYet)) {
			return request.Passing // another sentinel may know the name
		}
		return r.Lasts
	case distrusted(err):
		return request.Permanent
	}
	return request.Unforeseen
}

// distrusted reports whether one of the two sides does not accept the other's
// certificate, or its ways with TLS altogether.
func distrusted(err error) bool {
	if errors.As(err, new(*tls.CertificateVerificationError)) || errors.Is(err, ErrTLSMismatch) {
		return true
	}
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error" // a TLS alert; crypto/tls exports no more of it
}
