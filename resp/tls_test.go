package resp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
)

func TestTLSCarriesEverything(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	addr, roots := tlsFront(t, s.Addr())
	c := ready(t, Config{Addr: addr, TLS: &tls.Config{RootCAs: roots}})
	if _, err := c.Do(testContext(t), "SET", "k", "v"); err != nil {
		t.Fatal(err)
	}
	rec := requesttest.NewRecorder()
	c.Subscribe(NewChannel("a", rec))
	rec.Await(t, Subscribed)
	s.Do("PUBLISH", "a", "hi")
	rec.Await(t, Message)
}

func TestTLSRefusesAStranger(t *testing.T) {
	t.Parallel()
	addr, _ := tlsFront(t, redistest.Start(t).Addr())
	c := open(t, Config{Addr: addr, TLS: &tls.Config{}})
	err := c.WaitReady(testContext(t)) // only a human can mend that: it does not wait
	if e := (*tls.CertificateVerificationError)(nil); !errors.As(err, &e) || strings.Contains(err.Error(), "is not ready") {
		t.Fatalf("WaitReady: %v", err)
	}
}

func TestTLSServerThatRefusesTheClientIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for version, name := range map[uint16]string{tls.VersionTLS12: "1.2", tls.VersionTLS13: "1.3"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, roots := tlsFront(t, redistest.Start(t).Addr(), func(c *tls.Config) {
				c.ClientAuth = tls.RequireAnyClientCert
				c.MaxVersion = version
			})
			c := open(t, Config{Addr: addr, TLS: &tls.Config{RootCAs: roots}})
			err := c.WaitReady(testContext(t))
			if err == nil || !strings.Contains(err.Error(), "remote error: tls") || strings.Contains(err.Error(), "is not ready") {
				t.Fatalf("WaitReady: %v", err)
			}
		})
	}
}

func TestTLSPortSpokenToInPlainIsExplained(t *testing.T) {
	t.Parallel()
	addr, _ := tlsFront(t, redistest.Start(t).Addr())
	c := open(t, Config{Addr: addr})
	eventually(t, "a failed attempt", func() bool { return c.LastError(RoleLane, 0) != nil })
	if err := c.LastError(RoleLane, 0); !errors.Is(err, ErrTLSMismatch) {
		t.Fatalf("LastError: %v", err)
	}
}

// A server without TLS takes the hello for the beginning of a line, and waits for its end.
func TestPlainPortSpokenToInTLSIsExplained(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts in its backlog, and is silent
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := open(t, Config{Addr: l.Addr().String(), TLS: &tls.Config{}, DialTimeout: 50 * time.Millisecond})
	want := "resp: TLS handshake with " + l.Addr().String() +
		": no connection within DialTimeout (50ms); check that the server speaks TLS on this port"
	// On a busy machine an attempt may not even come so far.
	eventually(t, "an attempt fails, with: "+want, func() bool {
		err := c.LastError(RoleLane, 0)
		return err != nil && err.Error() == want
	})
}

// tlsFront ends TLS in front of a server, under a certificate of its own.
func tlsFront(t *testing.T, upstream string, change ...func(*tls.Config)) (addr string, roots *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AddCert(cert)

	cfg := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	for _, f := range change {
		f(cfg)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			front, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer front.Close()
				back, err := net.Dial("tcp", upstream)
				if err != nil {
					return
				}
				defer back.Close()
				wg.Go(func() { io.Copy(back, front); back.Close() })
				io.Copy(front, back)
			})
		}
	})
	return l.Addr().String(), roots
}
