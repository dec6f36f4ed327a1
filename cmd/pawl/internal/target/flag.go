package target

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/pasted"
)

// URLEnv and PasswordEnv are what the environment may say of the server.
const (
	URLEnv      = "PAWL_URL"
	PasswordEnv = "PAWL_PASSWORD"
	defaultURL  = "redis://127.0.0.1:6379"
)

// Flag is --addr, or one --quorum, and who we are there.
type Flag struct {
	cmd    *cobra.Command
	name   string // of the flag
	addr   string
	Access *AccessFlags
}

// AddFlag gives a command --addr and the flags of access.
func AddFlag(cmd *cobra.Command) *Flag {
	f := &Flag{cmd: cmd, name: "addr", Access: AddAccessFlags(cmd)}
	cmd.Flags().StringVar(&f.addr, "addr", "", "`URL` of the server, without a password (default $"+URLEnv+", else "+defaultURL+")")
	return f
}

// URL returns what the flag or the environment says, perhaps with a password: never print it.
func (f *Flag) URL() string {
	return pasted.Text(cmp.Or(f.addr, os.Getenv(URLEnv), defaultURL))
}

// Given reports whether the command line names the server.
func (f *Flag) Given() bool { return f.cmd.Flags().Changed(f.name) }

func (f *Flag) exposed() error {
	return exit.Usagef(f.cmd, "a password on the command line can be read by every user of this machine: put the URL into $%s, or the password into $%s or a --password-file", URLEnv, PasswordEnv)
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
	if f.addr == "" && f.Given() {
		return engine.Config{}, exit.Usagef(f.cmd, "--%s is empty: leave it out for $%s, else %s", f.name, URLEnv, defaultURL)
	}
	return f.Parse(f.URL())
}

// Parse is engine.ParseURL with what the flags and the environment say beside the URL.
func (f *Flag) Parse(raw string) (engine.Config, error) {
	if !strings.Contains(raw, "://") {
		return engine.Config{}, exit.Usagef(f.cmd, "%s is not a URL: it must look like %s, rediss://HOST:PORT or unix:///PATH", f.source(), defaultURL)
	}
	u, fromEnv := cutUser(raw), pasted.Secret(os.Getenv(PasswordEnv))
	switch {
	case u.password != "" && f.Given():
		return engine.Config{}, f.exposed()
	case f.Access.passwordFile != "": // for the time being: without a password a user is a mistake
		raw = u.scheme + u.rest
	case u.password == "" && fromEnv != "":
		raw = u.scheme + url.UserPassword(u.name, fromEnv).String() + "@" + u.rest
	case u.password == "" && u.name != "" && u.name != "default" && !u.colon:
		// Not quoted: without its colon a password stands there.
		return engine.Config{}, exit.Usagef(f.cmd, "%s has a user (what comes before the @) without a password: put the password into $%s or a --password-file; a user that needs none is written as user:@", f.source(), PasswordEnv)
	}
	cfg, err := engine.ParseURL(raw) // it does not quote a password
	if err != nil {
		return engine.Config{}, fmt.Errorf("%s: %w", f.source(), err)
	}
	if cfg.SentinelPassword != "" && f.Given() {
		return engine.Config{}, f.exposed()
	}
	if err := f.Access.apply(&cfg, u.name); err != nil {
		return engine.Config{}, exit.Usagef(f.cmd, "%v", err)
	}
	return cfg, nil
}

// userURL is a URL cut into pieces. url.Parse would not take the lists of hosts that
// those of clusters and sentinels have.
type userURL struct {
	scheme, name, password, rest string
	colon                        bool // between name and password
}

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
	name, password, colon := strings.Cut(u.rest[:at], ":")
	var badName, badPassword error
	u.name, badName = url.PathUnescape(name)
	u.password, badPassword = url.PathUnescape(password)
	if badName != nil || badPassword != nil {
		return userURL{scheme: raw[:i], password: "?", rest: raw[i:]}
	}
	u.rest, u.colon = u.rest[at+1:], colon
	return u
}
