package main

import (
	"cmp"
	"context"
	"crypto/tls"
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

const (
	urlEnv      = "PAWL_URL"
	passwordEnv = "PAWL_PASSWORD"
	defaultURL  = "redis://127.0.0.1:6379"
	// connectTimeout is how long a command tries to reach its server, unless the
	// URL says otherwise with dial_timeout.
	connectTimeout = 5 * time.Second
)

// serverFlag is --addr, or one --quorum, and how to use TLS there.
type serverFlag struct {
	cmd  *cobra.Command
	name string // of the flag
	addr string
	tls  *tlsFlags
}

func addServerFlag(cmd *cobra.Command) *serverFlag {
	f := &serverFlag{cmd: cmd, name: "addr", tls: addTLSFlags(cmd)}
	cmd.Flags().StringVar(&f.addr, "addr", "", "`URL` of the server, without a password (default $"+urlEnv+", else "+defaultURL+")")
	return f
}

// url returns the server's URL, the password included: never print it.
func (f *serverFlag) url() (string, error) {
	raw := f.addr
	if raw == "" && f.given() {
		return "", exit.Usagef(f.cmd, "--%s is empty: leave it out for $%s, else %s", f.name, urlEnv, defaultURL)
	}
	if raw == "" {
		raw = os.Getenv(urlEnv)
	}
	if raw == "" {
		raw = defaultURL
	}
	if !strings.Contains(raw, "://") {
		return "", exit.Usagef(f.cmd, "%s is not a URL: it must look like %s, rediss://HOST:PORT or unix:///PATH", f.source(), defaultURL)
	}
	u := cutUser(raw)
	switch fromEnv := os.Getenv(passwordEnv); {
	case u.password != "" && f.given():
		return "", f.exposed()
	case u.password == "" && fromEnv != "":
		return u.scheme + url.UserPassword(u.name, fromEnv).String() + "@" + u.rest, nil
	case u.password == "" && u.name != "":
		// Not quoted: without its colon a password stands there.
		return "", exit.Usagef(f.cmd, "%s has a user (what comes before the @) without a password: put the password into $%s", f.source(), passwordEnv)
	}
	return raw, nil // if there is something wrong, engine.ParseURL complains without quoting it
}

// given reports whether the command line names the server.
func (f *serverFlag) given() bool { return f.cmd.Flags().Changed(f.name) }

func (f *serverFlag) exposed() error {
	return exit.Usagef(f.cmd, "a password on the command line can be read by every user of this machine: put the URL into $%s, or the password into $%s", urlEnv, passwordEnv)
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
func (f *serverFlag) source() string {
	if f.addr == "" {
		return "$" + urlEnv
	}
	return "--" + f.name
}

// config returns what the flags and the environment say.
func (f *serverFlag) config() (engine.Config, error) {
	raw, err := f.url()
	if err != nil {
		return engine.Config{}, err
	}
	cfg, err := engine.ParseURL(raw)
	if err != nil {
		return engine.Config{}, fmt.Errorf("%s: %w", f.source(), err)
	}
	if cfg.SentinelPassword != "" && f.given() {
		return engine.Config{}, f.exposed()
	}
	if err := f.tls.apply(&cfg); err != nil {
		return engine.Config{}, exit.Usagef(f.cmd, "%v", err)
	}
	return cfg, nil
}

// target returns the server's URL, the password included, and what the flags say of
// TLS, nil for nothing.
func (f *serverFlag) target() (string, *tls.Config, error) {
	cfg, err := f.config()
	if err != nil {
		return "", nil, err
	}
	raw, err := f.url()
	if !f.tls.given() {
		return raw, nil, err
	}
	return raw, cfg.TLS, err
}

// open connects to the server. The caller closes the engine.
func (f *serverFlag) open(ctx context.Context) (*engine.Engine, error) {
	cfg, err := f.config()
	if err != nil {
		return nil, err
	}
	return connect(ctx, cfg, 0)
}

// connect tries for atMost, if that is not 0.
func connect(ctx context.Context, cfg engine.Config, atMost time.Duration) (*engine.Engine, error) {
	dial := cmp.Or(cfg.DialTimeout, connectTimeout)
	timeout, slack := dial, 2*time.Second // New ends by itself, and its error says more than that time is over
	if atMost > 0 && atMost < dial+slack {
		timeout, slack = atMost, 0
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout+slack, fmt.Errorf("tried for %v", timeout))
	defer cancel()
	eng, err := engine.New(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("%w; %s", err, wayOut(err)) // it names the server
	}
	return eng, nil
}

// wayOut says what to do about a server that cannot be used.
func wayOut(err error) string {
	if errors.Is(err, resp.ErrSentinelAuth) {
		return "put the sentinels' password into $" + urlEnv + ": redis+sentinel://...?sentinel_password=..."
	}
	if errors.Is(err, resp.ErrTooOld) {
		return "name another server with --addr or $" + urlEnv
	}
	if errors.As(err, new(*tls.CertificateVerificationError)) {
		return "name the authority of its certificate with --cacert"
	}
	if op := new(net.OpError); errors.As(err, &op) && op.Op == "remote error" { // a TLS alert, as in resp
		return "if it asks for a client certificate, give it --cert and --key"
	}
	var refused *resp.ServerError
	if !errors.As(err, &refused) {
		return "start a server there, or name another one with --addr or $" + urlEnv
	}
	switch refused.Code {
	case "NOAUTH", "WRONGPASS":
		return "put the right password into $" + passwordEnv + ", or with its user into $" + urlEnv
	case "NOPERM":
		return "the user needs more rights: see the ACL rules in docs/operations.md"
	}
	return "the server can be reached, but refuses"
}
