package target

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/engine"
)

// TLSFlags are the flags that say whom to trust and who we are. Files and not texts:
// a private key on the command line could be read by everybody.
type TLSFlags struct {
	caCert, cert, key string
	skipVerify        bool
}

// AddTLSFlags gives a command the flags of TLS.
func AddTLSFlags(cmd *cobra.Command) *TLSFlags {
	f := new(TLSFlags)
	flags := cmd.Flags()
	flags.StringVar(&f.caCert, "cacert", "", "PEM `FILE` of the authorities to trust for the server's certificate (default: those of the system)")
	flags.StringVar(&f.cert, "cert", "", "PEM `FILE` of the client certificate; needs --key")
	flags.StringVar(&f.key, "key", "", "PEM `FILE` of the private key of --cert")
	flags.BoolVar(&f.skipVerify, "insecure-skip-verify", false, "accept any certificate, so any server that answers gets the password")
	return f
}

// Given reports whether one of them was given.
func (f *TLSFlags) Given() bool { return *f != TLSFlags{} }

// Args returns the flags as they were given.
func (f *TLSFlags) Args() (args []string) {
	for name, value := range map[string]string{"--cacert": f.caCert, "--cert": f.cert, "--key": f.key} {
		if value != "" {
			args = append(args, name, value)
		}
	}
	if f.skipVerify {
		args = append(args, "--insecure-skip-verify")
	}
	return args
}

// Apply changes what the URL said.
func (f *TLSFlags) Apply(to *engine.Config) error {
	cfg := to.TLS
	switch {
	case !f.Given():
		return nil
	case cfg == nil:
		return errors.New("--cacert, --cert, --key and --insecure-skip-verify need a URL that begins with rediss")
	case (f.cert == "") != (f.key == ""):
		return errors.New("--cert and --key must be given together")
	}
	if f.caCert != "" {
		pem, err := os.ReadFile(f.caCert)
		if err != nil {
			return fmt.Errorf("--cacert: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("--cacert: %s has no certificate in PEM form", f.caCert)
		}
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return fmt.Errorf("--cert, --key: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	cfg.InsecureSkipVerify = f.skipVerify
	return nil
}
