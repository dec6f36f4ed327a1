package target

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/pawl-lock/pawl/internal/pasted"
	"github.com/pawl-lock/pawl/resp"
)

// WayOut says what to do about a server that cannot be used.
func (f *Flag) WayOut(err error) string {
	var refused *resp.ServerError
	op := new(net.OpError)
	switch {
	case errors.Is(err, resp.ErrSentinelAuth):
		return "put the sentinels' password into $" + URLEnv + ": redis+sentinel://...?sentinel_password=..., or into a --sentinel-password-file"
	case errors.Is(err, resp.ErrTooOld):
		return "name another server with --addr or $" + URLEnv
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return distrust(err)
	case errors.Is(err, resp.ErrTLSMismatch):
		return "change " + f.source()
	case errors.As(err, &op) && op.Op == "remote error": // a TLS alert, as in resp
		return "if it asks for a client certificate, give it --cert and --key"
	case errors.As(err, &refused):
		return f.refusal(err, refused)
	case errors.Is(err, resp.ErrHandshake):
		return "something accepts connections there: check the port, and that a Redis or Valkey server that is up answers there"
	case errors.Is(err, resp.ErrDial):
		return "start a server there, or name another one with --addr or $" + URLEnv
	}
	return "check that a Redis or Valkey server answers there, or name another one with --addr or $" + URLEnv
}

// distrust says what to do about a certificate.
func distrust(err error) string {
	invalid := x509.CertificateInvalidError{}
	switch {
	case errors.As(err, new(x509.HostnameError)):
		return "name the server as its certificate does, say with --tls-server-name what the certificate calls it, or give it a certificate for this name; the nodes of a cluster may announce their names (cluster-announce-hostname, with cluster-preferred-endpoint-type hostname)"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "renew the certificate, or set this machine's clock"
	}
	return "name the authority of its certificate with --cacert"
}

// refusal says what to do about a server that answers and refuses.
func (f *Flag) refusal(err error, refused *resp.ServerError) string {
	switch {
	case resp.Unclear(err):
		return "the server has no password: leave it out of $" + URLEnv + " and $" + PasswordEnv + ", or set one on the server (requirepass)"
	case refused.Code == "NOAUTH", refused.Code == "WRONGPASS":
		return "put the right password into $" + PasswordEnv + " or a --password-file, or with its user into $" + URLEnv + f.doubts()
	case refused.Begins("ERR This instance has cluster support disabled"):
		return "it is one server: connect with redis:// instead of redis+cluster://"
	case refused.Code == "NOPERM":
		return "the user needs more rights: see the ACL rules in docs/operations.md"
	}
	return "the server can be reached, but refuses"
}

// doubts names what is odd about the credentials, without showing a password.
func (f *Flag) doubts() string {
	u, text := cutUser(f.URL()), ""
	password := u.password
	if password == "" {
		password = pasted.Secret(os.Getenv(PasswordEnv))
	}
	if odd := pasted.Doubtful(password); odd != "" && f.Access.passwordFile == "" {
		text = "; the password has " + odd
	}
	if u.name != "" && u.name != "default" {
		text += fmt.Sprintf("; the user is %q, and the default user's password is written as redis://:PASSWORD@HOST", u.name)
	}
	return text
}
