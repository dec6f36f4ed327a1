package target

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/internal/redistest"
)

// A command may run for longer than its certificate and its authorities are valid.
func TestAccessFlags_FilesThatAreReplaced_AreReadAgain(t *testing.T) {
	t.Parallel()
	first, second := redistest.Start(t, redistest.TLS()), redistest.Start(t, redistest.TLS())
	dir := t.TempDir()
	take := func(s *redistest.Server) {
		for _, name := range []string{"cert.pem", "key.pem"} {
			b, err := os.ReadFile(filepath.Join(s.Dir(), name))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	take(first)
	cmd := new(cobra.Command)
	f := AddFlag(cmd)
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := cmd.ParseFlags([]string{"--addr", first.URL(), "--cacert", cert, "--cert", cert, "--key", key}); err != nil {
		t.Fatal(err)
	}
	cfg, err := f.Config()
	if err != nil {
		t.Fatal(err)
	}
	refreshed := func() *tls.Config {
		c := cfg.TLS.Clone()
		if err := cfg.RefreshTLS(c); err != nil {
			t.Fatal(err)
		}
		if c.InsecureSkipVerify || c.RootCAs == nil {
			t.Fatal("less is verified")
		}
		return c
	}
	before := refreshed()
	take(second)
	after := refreshed()
	if before.RootCAs.Equal(after.RootCAs) || before.Certificates[0].Leaf.Equal(after.Certificates[0].Leaf) {
		t.Error("the files were not read again")
	}
	if err := os.Remove(cert); err != nil {
		t.Fatal(err)
	}
	if cfg.RefreshTLS(cfg.TLS.Clone()) == nil {
		t.Error("without the authorities it goes on, with those of the system")
	}
}
