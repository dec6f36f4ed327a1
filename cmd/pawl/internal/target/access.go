package target

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/pasted"
)

// AccessFlags are the flags that say whom to trust and who we are. Files and not texts: a
// private key or a password on the command line could be read by everybody. They are read
// again at each handshake, since a command may run for longer than a certificate lasts.
type AccessFlags struct {
	caCert, cert, key, serverName      string
	skipVerify                         bool
	passwordFile, sentinelPasswordFile string
}

// AddAccessFlags gives a command these flags.
func AddAccessFlags(cmd *cobra.Command) *AccessFlags {
	f := new(AccessFlags)
	flags := cmd.Flags()
	flags.StringVar(&f.caCert, "cacert", "", "PEM `FILE` of the authorities to trust for the server's certificate (default: those of the system)")
	flags.StringVar(&f.cert, "cert", "", "PEM `FILE` of the client certificate; needs --key")
	flags.StringVar(&f.key, "key", "", "PEM `FILE` of the private key of --cert")
	flags.StringVar(&f.serverName, "tls-server-name", "", "`NAME` that the servers' certificates must have (default: the host that is dialled)")
	flags.BoolVar(&f.skipVerify, "insecure-skip-verify", false, "accept any certificate, so any server that answers gets the password")
	flags.StringVar(&f.passwordFile, "password-file", "", "`FILE` with the password, read again at every connect")
	flags.StringVar(&f.sentinelPasswordFile, "sentinel-password-file", "", "the same for the sentinels, which have passwords of their own: a `FILE`")
	return f
}

// Given reports whether one of them was given.
func (f *AccessFlags) Given() bool { return *f != AccessFlags{} }

// tls reports whether one was given that concerns TLS.
func (f *AccessFlags) tls() bool {
	without := *f
	without.passwordFile, without.sentinelPasswordFile = "", ""
	return without.Given()
}

// Args returns the flags as they were given.
func (f *AccessFlags) Args() (args []string) {
	for name, value := range map[string]string{
		"--cacert": f.caCert, "--cert": f.cert, "--key": f.key, "--tls-server-name": f.serverName,
		"--password-file": f.passwordFile, "--sentinel-password-file": f.sentinelPasswordFile,
	} {
		if value != "" {
			args = append(args, name, value)
		}
	}
	if f.skipVerify {
		args = append(args, "--insecure-skip-verify")
	}
	return args
}

// apply changes what the URL said. user is the one in the URL.
func (f *AccessFlags) apply(to *engine.Config, user string) error {
	if err := f.applyTLS(to); err != nil {
		return err
	}
	if f.passwordFile != "" {
		to.Username, to.Password, to.Credentials = "", "", passwordIn("--password-file", f.passwordFile, user)
	}
	if f.sentinelPasswordFile != "" {
		if to.Topology != "sentinel" {
			return errors.New("--sentinel-password-file needs a URL that begins with redis+sentinel")
		}
		to.SentinelCredentials = passwordIn("--sentinel-password-file", f.sentinelPasswordFile, to.SentinelUsername)
		to.SentinelUsername, to.SentinelPassword = "", ""
	}
	return nil
}

// passwordIn returns Credentials of a file.
func passwordIn(flag, file, user string) func(context.Context) (string, string, error) {
	return func(context.Context) (string, string, error) {
		text, err := contents(file)
		if err != nil {
			return "", "", fmt.Errorf("%s: %w", flag, err)
		}
		password := pasted.Secret(string(text))
		if password == "" {
			return "", "", fmt.Errorf("%s: %s is empty", flag, file)
		}
		return user, password, nil
	}
}

func (f *AccessFlags) applyTLS(to *engine.Config) error {
	var all []*tls.Config
	for _, cfg := range []*tls.Config{to.TLS, to.SentinelTLS} {
		if cfg != nil && cfg != engine.NoTLS {
			all = append(all, cfg)
		}
	}
	switch {
	case !f.tls():
		return nil
	case all == nil:
		return errors.New("--cacert, --cert, --key, --tls-server-name and --insecure-skip-verify need a URL that begins with rediss")
	case (f.cert == "") != (f.key == ""):
		return errors.New("--cert and --key must be given together")
	}
	for _, cfg := range all {
		cfg.InsecureSkipVerify = f.skipVerify
		if f.serverName != "" {
			cfg.ServerName = f.serverName
		}
	}
	to.RefreshTLS = f.refresh
	return f.refresh(new(tls.Config)) // what is wrong from the beginning is a mistake
}

// refresh reads the files again.
func (f *AccessFlags) refresh(cfg *tls.Config) error {
	if f.caCert != "" {
		pem, err := contents(f.caCert)
		if err != nil {
			return fmt.Errorf("--cacert: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("--cacert: %s has no certificate in PEM form", f.caCert)
		}
	}
	if f.cert != "" {
		cert, err := contents(f.cert)
		if err != nil {
			return fmt.Errorf("--cert: %w", err)
		}
		key, err := contents(f.key)
		if err != nil {
			return fmt.Errorf("--key: %w", err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("--cert, --key: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// drained are the contents of pipes, as of <(command) in a shell, by name: they can be read once.
var drained struct {
	sync.Mutex
	pipes map[string][]byte
}

// contents reads a file.
func contents(file string) ([]byte, error) {
	if info, err := os.Stat(file); err != nil || info.Mode().IsRegular() {
		return os.ReadFile(file) // which says what is wrong
	}
	drained.Lock()
	defer drained.Unlock()
	if text, ok := drained.pipes[file]; ok {
		return text, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if drained.pipes == nil {
		drained.pipes = make(map[string][]byte)
	}
	drained.pipes[file] = text
	return text, nil
}

// rotates reports whether a password comes from a file, and may be another one at the next look.
func (f *AccessFlags) rotates() bool { return f.passwordFile != "" || f.sentinelPasswordFile != "" }
