package redistest

import (
	"os"
	"os/exec"
	"strings"
)

// OnValkey starts a valkey-server instead: $PAWL_VALKEY_SERVER, or the one on PATH.
// Without one the test is skipped; in CI it fails, unless $PAWL_VALKEY_REFUSED says why
// none could be had.
func OnValkey(t interface {
	TB
	Skip(args ...any)
}) Option {
	t.Helper()
	path := os.Getenv("PAWL_VALKEY_SERVER")
	if path == "" {
		path, _ = exec.LookPath("valkey-server")
	}
	refused := os.Getenv("PAWL_VALKEY_REFUSED")
	switch {
	case path != "":
	case os.Getenv("CI") != "" && refused == "":
		t.Fatalf("there is no valkey-server on PATH, nor in $PAWL_VALKEY_SERVER; .ci/tools valkey installs one")
	default:
		t.Skip("NOT TESTED ON VALKEY: there is no valkey-server on PATH, nor in $PAWL_VALKEY_SERVER. " + refused)
	}
	return func(c *Config) { c.Binary = path }
}

// OnValkey9 starts a valkey-server of version 9 instead: the one that Start would start if it is
// one, else $PAWL_VALKEY9_SERVER. Without one the test is skipped.
func OnValkey9(t interface {
	TB
	Skip(args ...any)
}) Option {
	t.Helper()
	path := os.Getenv("PAWL_VALKEY9_SERVER")
	if own, err := Binary(); err == nil && strings.HasPrefix(programAt(own).version, "Valkey 9.") {
		path = own
	}
	if path == "" {
		t.Skip("NOT TESTED ON VALKEY 9: $PAWL_VALKEY9_SERVER does not name a valkey-server of it; .ci/server valkey-9.1 makes one")
	}
	return func(c *Config) { c.Binary = path }
}
