package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// Every command that connects takes the same flags.
func TestCommandsTrustAndShowTheCertificatesThatFlagsName(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.ClientCerts())
	cert, key := filepath.Join(s.Dir(), "cert.pem"), filepath.Join(s.Dir(), "key.pem")
	flags := []string{"--addr", s.URL(), "--cacert", cert, "--cert", cert, "--key", key}
	for _, args := range [][]string{
		{"ping"},
		{"status", "a"},
		{"exec", "a", "--", "go", "version"},
		brief("uncontended"),
		{"demo", "--increments", "10", "--lease", "1s"},
	} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			with := append([]string{args[0]}, append(flags, args[1:]...)...)
			pawl(t, nil, with...).expect(t, 0)
			without := append([]string{args[0], "--addr", s.URL() + "?dial_timeout=20s"}, args[1:]...)
			pawl(t, nil, without...).expect(t, exit.Server, "--cacert")
		})
	}
	pawl(t, nil, append([]string{"unlock", "--force", "a"}, flags...)...).expect(t, 1, "nothing to remove")
	// To start another server would not help.
	pawl(t, nil, "ping", "--addr", s.URL()+"?dial_timeout=20s").expect(t, exit.Server, "unknown authority", "with --cacert")
	pawl(t, nil, "ping", "--addr", s.URL()+"?dial_timeout=20s", "--cacert", cert).expect(t, exit.Server, "certificate", "give it --cert and --key")
	// With --insecure-skip-verify no authority is needed.
	pawl(t, nil, "ping", "--addr", s.URL(), "--insecure-skip-verify", "--cert", cert, "--key", key).expect(t, 0)
}

func TestMistakesWithTLSFlagsAreUsage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.TLS())
	cert, key := filepath.Join(s.Dir(), "cert.pem"), filepath.Join(s.Dir(), "key.pem")
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	plain := strings.Replace(s.URL(), "rediss", "redis", 1)
	for _, c := range []struct{ args, text string }{
		{"ping --addr " + plain + " --cacert " + cert, "begins with rediss"},
		{"ping --addr " + plain + " --insecure-skip-verify", "begins with rediss"},
		{"ping --addr " + s.URL() + " --cacert " + cert + ".gone", "no such file"},
		{"ping --addr " + s.URL() + " --cacert " + empty, "has no certificate"},
		{"ping --addr " + s.URL() + " --cert " + cert, "must be given together"},
		{"ping --addr " + s.URL() + " --key " + key, "must be given together"},
		{"ping --addr " + s.URL() + " --cert " + key + " --key " + cert, "--cert, --key"},
		{"demo --cacert " + cert, "embedded server has no TLS"},
		{"bench single --cacert " + cert, "has no TLS"},
	} {
		pawl(t, nil, strings.Fields(c.args)...).expect(t, exit.Usage, c.text)
	}
}

// To trust another authority would not help against a name or a date.
func TestACertificateThatCannotBeUsedSaysWhy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change     func(*x509.Certificate)
		text, hint string
	}{
		{func(c *x509.Certificate) { c.IPAddresses = nil }, "cannot validate certificate for 127.0.0.1", "name the server as its certificate does"},
		{func(c *x509.Certificate) { c.NotAfter = c.NotBefore.Add(time.Minute) }, "has expired", "renew the certificate"},
	} {
		cert := &x509.Certificate{
			SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"elsewhere.example"},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		}
		c.change(cert)
		addr, authority := impostor(t, cert)
		v := pawl(t, nil, "ping", "--addr", "rediss://"+addr+"?dial_timeout=20s", "--cacert", authority)
		v.expect(t, exit.Server, c.text, c.hint)
		if strings.Contains(v.stderr.String(), "--cacert") {
			t.Errorf("the authority is trusted: %s", v.stderr.String())
		}
	}
}

// impostor is a server that shows this certificate and never gets further, and the file of its
// authority.
func impostor(t *testing.T, template *x509.Certificate) (addr, authority string) {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	der := must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	authority = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	l := must(tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}))(t)
	over := make(chan struct{})
	go func() { // ends when the listener is closed
		defer close(over)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).Handshake()
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-over })
	return l.Addr().String(), authority
}
