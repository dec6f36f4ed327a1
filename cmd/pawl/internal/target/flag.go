package target

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/resp"
)

// URLEnv and PasswordEnv are what the environment may say of the server.
const (
	URLEnv      = "PAWL_URL"
	PasswordEnv = "PAWL_PASSWORD"
	defaultURL  = "redis://127.0.0.1:6379"
	// connectTimeout is how long a command tries to reach its server, unless the
	// URL says otherwise with dial_timeout.
	connectTimeout = 5 * time.Second
)

// Flag is --addr, or one --quorum, and how to use TLS there.
type Flag struct {
	cmd  *cobra.Command
	name string // of the flag
	addr string
	TLS  *TLSFlags
}

// AddFlag gives a command --addr and the flags of TLS.
func AddFlag(cmd *cobra.Command) *Flag {
	f := &Flag{cmd: cmd, name: "addr", TLS: AddTLSFlags(cmd)}
	cmd.Flags().StringVar(&f.addr, "addr", "", "`URL` of the server, without a password (default $"+URLEnv+", else "+defaultURL+")")
	return f
}

// url returns the server's URL, the password included: never print it.
func (f *Flag) url() (string, error) {
	raw := f.addr
	if raw == "" && f.Given() {
		return "", exit.Usagef(f.cmd, "--%s is empty: leave it out for $%s, else %s", f.name, URLEnv, defaultURL)
	}
	if raw == "" {
		raw = os.Getenv(URLEnv)
	}
	if raw == "" {
		raw = defaultURL
	}
	if !strings.Contains(raw, "://") {
		return "", exit.Usagef(f.cmd, "%s is not a URL: it must look like %s, rediss://HOST:PORT or unix:///PATH", f.source(), defaultURL)
	}
	u := cutUser(raw)
	switch fromEnv := os.Getenv(PasswordEnv); {
	case u.password != "" && f.Given():
		return "", f.exposed()
	case u.password == "" && fromEnv != "":
		return u.scheme + url.UserPassword(u.name, fromEnv).String() + "@" + u.rest, nil
	case u.password == "" && u.name != "":
		// Not quoted: without its colon a password stands there.
		return "", exit.Usagef(f.cmd, "%s has a user (what comes before the @) without a password: put the password into $%s", f.source(), PasswordEnv)
	}
	return raw, nil // if there is something wrong, engine.ParseURL complains without quoting it
}

// Given reports whether the command line names the server.
func (f *Flag) Given() bool { return f.cmd.Flags().Changed(f.name) }

func (f *Flag) exposed() error {
	return exit.Usagef(f.cmd, "a password on the command line can be read by every user of this machine: put the URL into $%s, or the password into $%s", URLEnv, PasswordEnv)
}

// userURL is a URL cut into pieces. url.Parse would not take the lists of hosts that
// those of clusters and sentinels have.
type userURL struct{ scheme, name, password, rest string }

func cutUser(raw string) userURL {
	i := strings.Index(raw, "://") + len("://")
	u := userURL{scheme: raw[:i], rest: raw[i:]}
	end := strings.IndexAny(u.rest, "/?#")
	if end < 0 {
		end = len(u.rest)
	}
	at := strings.LastIndexByte(u.rest[:end], '@')
	if at < 0 {
		return u
	}
	name, password, _ := strings.Cut(u.rest[:at], ":")
	var badName, badPassword error
	u.name, badName = url.PathUnescape(name)
	u.password, badPassword = url.PathUnescape(password)
	if badName != nil || badPassword != nil {
		return userURL{scheme: raw[:i], password: "?", rest: raw[i:]}
	}
	u.rest = u.rest[at+1:]
	return u
}

// source is where the URL comes from.
func (f *Flag) source() string {
	if f.addr == "" {
		return "$" + URLEnv
	}
	return "--" + f.name
}

// Config returns what the flags and the environment say.
func (f *Flag) Config() (engine.Config, error) {
	raw, err := f.url()
	if err != nil {
		return engine.Config{}, err
	}
	cfg, err := engine.ParseURL(raw)
	if err != nil {
		return engine.Config{}, fmt.Errorf("%s: %w", f.source(), err)
	}
	if cfg.SentinelPassword != "" && f.Given() {
		return engine.Config{}, f.exposed()
	}
	if err := f.TLS.Apply(&cfg); err != nil {
		return engine.Config{}, exit.Usagef(f.cmd, "%v", err)
	}
	return cfg, nil
}

// Address returns the server's URL, the password included, and what the flags say of
// TLS, nil for nothing.
func (f *Flag) Address() (string, *tls.Config, error) {
	cfg, err := f.Config()
	if err != nil {
		return "", nil, err
	}
	raw, err := f.url()
	if !f.TLS.Given() {
		return raw, nil, err
	}
	return raw, cfg.TLS, err
}

// Connect connects to the server; the caller closes the engine. It tries for atMost, if that is not 0.
func Connect(ctx context.Context, cfg engine.Config, atMost time.Duration) (*engine.Engine, error) {
	dial := cmp.Or(cfg.DialTimeout, connectTimeout)
	timeout, slack := dial, 2*time.Second // New ends by itself, and its error says more than that time is over
	if atMost > 0 && atMost < dial+slack {
		timeout, slack = atMost, 0
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout+slack, fmt.Errorf("tried for %v", timeout))
	defer cancel()
	eng, err := engine.New(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("%w; %s", err, WayOut(err)) // it names the server
	}
	return eng, nil
}

// WayOut says what to do about a server that cannot be used.
func WayOut(err error) string {
	if errors.Is(err, resp.ErrSentinelAuth) {
		return "put the sentinels' password into $" + URLEnv + ": redis+sentinel://...?sentinel_password=..."
	}
	if errors.Is(err, resp.ErrTooOld) {
		return "name another server with --addr or $" + URLEnv
	}
	if errors.As(err, new(*tls.CertificateVerificationError)) {
		invalid := x509.CertificateInvalidError{}
		switch {
		case errors.As(err, new(x509.HostnameError)):
			return "name the server as its certificate does, or give it a certificate for this name"
		case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
			return "renew the certificate, or set this machine's clock"
		}
		return "name the authority of its certificate with --cacert"
	}
	if op := new(net.OpError); errors.As(err, &op) && op.Op == "remote error" { // a TLS alert, as in resp
		return "if it asks for a client certificate, give it --cert and --key"
	}
	var refused *resp.ServerError
	if !errors.As(err, &refused) {
		return "start a server there, or name another one with --addr or $" + URLEnv
	}
	switch refused.Code {
	case "NOAUTH", "WRONGPASS":
		return "put the right password into $" + PasswordEnv + ", or with its user into $" + URLEnv
	case "NOPERM":
		return "the user needs more rights: see the ACL rules in docs/operations.md"
	}
	return "the server can be reached, but refuses"
}
