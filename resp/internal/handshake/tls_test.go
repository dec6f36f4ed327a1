package handshake

import (
	"crypto/tls"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/sockettest"
)

// Gateways and clouds tell by the name (SNI) which server is meant, whether the client
// verifies it or not.
func TestConfig_TLSConfig_NamesTheServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, network, addr string // addr: without the port
		config              *tls.Config
		want                string
	}{
		{"verified", "tcp", "localhost", &tls.Config{}, "localhost"},
		{"not verified", "tcp", "localhost", &tls.Config{InsecureSkipVerify: true}, "localhost"},
		{"another name", "tcp", "localhost", &tls.Config{InsecureSkipVerify: true, ServerName: "redis.example"}, "redis.example"},
		{"an address has none", "tcp", "127.0.0.1", &tls.Config{InsecureSkipVerify: true}, ""},
		{"nor has a path", "unix", "", &tls.Config{InsecureSkipVerify: true}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			addr := "127.0.0.1:0"
			if c.network == "unix" {
				addr = filepath.Join(t.TempDir(), "s")
			}
			plain, err := net.Listen(c.network, addr)
			if err != nil {
				t.Fatal(err)
			}
			defer plain.Close()
			if c.network == "tcp" {
				_, port, _ := net.SplitHostPort(plain.Addr().String())
				addr = net.JoinHostPort(c.addr, port)
			}
			names := make(chan string, 1)
			go func() {
				conn, err := plain.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				secure := tls.Server(conn, &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
					names <- hello.ServerName
					return nil, nil
				}})
				_ = secure.Handshake() // there is no certificate
			}()
			before := c.config.ServerName
			ctx, cancel := cputime.WithTimeout(t.Context(), sockettest.Patience)
			defer cancel()
			cfg := Config{Network: c.network, Addr: addr, TLS: c.config, DialTimeout: time.Second}
			conn, err := cfg.dial(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if conn, err = cfg.secure(ctx, conn); err == nil {
				conn.Close()
			}
			if got := sockettest.Receive(t, names, "the client's hello"); got != c.want {
				t.Errorf("the server is called %q, want %q", got, c.want)
			}
			if c.config.ServerName != before {
				t.Error("the user's configuration was changed")
			}
		})
	}
}
