package resp

import (
	"context"
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

	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
)

func TestConfig_TLS_CarriesEverything(t *testing.T) {
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

func TestConfig_TLSUnknownCertificate_IsRefused(t *testing.T) {
	t.Parallel()
	addr, _ := tlsFront(t, redistest.Start(t).Addr())
	c := open(t, Config{Addr: addr, TLS: &tls.Config{}})
	err := c.WaitReady(testContext(t)) // only a human can mend that: it does not wait
	if e := (*tls.CertificateVerificationError)(nil); !errors.As(err, &e) || strings.Contains(err.Error(), "is not ready") {
		t.Fatalf("WaitReady: %v", err)
	}
}

func TestConfig_TLSClientRefused_FailsAtOnce(t *testing.T) {
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

func TestConfig_PlainOnATLSPort_IsExplained(t *testing.T) {
	t.Parallel()
	addr, _ := tlsFront(t, redistest.Start(t).Addr())
	c := open(t, Config{Addr: addr})
	eventually(t, "a failed attempt", func() bool { return c.LastError(RoleLane, 0) != nil })
	if err := c.LastError(RoleLane, 0); !errors.Is(err, ErrTLSMismatch) {
		t.Fatalf("LastError: %v", err)
	}
}

// A server without TLS takes the hello for the beginning of a line, and waits for its end.
func TestConfig_TLSOnAPlainPort_IsExplained(t *testing.T) {
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

// quietInTLS is a server without TLS, in front of upstream: like Redis, it says nothing to the
// hello of a TLS client, because it waits for the end of the line.
func quietInTLS(t *testing.T, upstream string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
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
				first := make([]byte, 1)
				if _, err := io.ReadFull(front, first); err != nil {
					return
				}
				if first[0] != '*' {
					_, _ = io.Copy(io.Discard, front)
					return
				}
				back, err := net.Dial("tcp", upstream)
				if err != nil {
					return
				}
				defer back.Close()
				_, _ = back.Write(first)
				wg.Go(func() { _, _ = io.Copy(back, front); back.Close() })
				_, _ = io.Copy(front, back)
			})
		}
	})
	return l.Addr().String()
}

// mismatch opens a client that cannot connect because of TLS, and returns why. Only what is
// found out ends the waiting: a dial may take a minute.
func mismatch(t *testing.T, cfg Config) string {
	t.Helper()
	cfg.DialTimeout = time.Minute
	begun := cputime.Now()
	err := open(t, cfg).WaitFirst(testContext(t))
	if !errors.Is(err, ErrTLSMismatch) || !strings.Contains(err.Error(), "TLS") || strings.Contains(err.Error(), "is not ready") {
		t.Errorf("%v: %v", cfg.Topology, err)
		return ""
	}
	if d := begun.Elapsed(); d > 10*time.Second {
		t.Errorf("%v: it took %v", cfg.Topology, d)
	}
	return err.Error()
}

func TestConnect_TLSOnOneSideOnly_SaysSoInEveryTopology(t *testing.T) {
	t.Parallel()
	for _, topology := range []Topology{Standalone, Cluster, Sentinel, Replicas} {
		t.Run(topology.String(), func(t *testing.T) {
			t.Parallel()
			speaksTLS, roots := tlsFront(t, fakenode.New(t).Addr())
			plain := quietInTLS(t, fakenode.New(t).Addr())
			at := func(addr string, with *tls.Config) Config {
				cfg := Config{Topology: topology, Addr: addr, Addrs: []string{addr}, TLS: with}
				if topology == Sentinel {
					cfg.Master = "m"
				}
				return cfg
			}
			if text := mismatch(t, at(speaksTLS, nil)); !strings.Contains(text, " speaks TLS on this port") {
				t.Error(text)
			}
			if text := mismatch(t, at(plain, &tls.Config{RootCAs: roots})); !strings.Contains(text, " does not speak TLS on this port") {
				t.Error(text)
			}
		})
	}
}

// The error names the side, since the sentinels may be right and their servers not.
func TestSentinels_TLSOfOneSide_IsConfiguredAndNamed(t *testing.T) {
	t.Parallel()
	server := fakenode.New(t)
	server.On(roles, roleOfPrimaryOf())
	serverTLS, roots := tlsFront(t, server.Addr())
	serverPlain := quietInTLS(t, server.Addr())
	with := &tls.Config{RootCAs: roots}
	sentinelOf := func(primary string) *fakenode.Node {
		s := fakenode.New(t)
		naming(s, primary, 1, s)
		return s
	}
	ofTLS, ofPlain := sentinelOf(serverTLS), sentinelOf(serverPlain)
	ofPlainTLS, sentinelRoots := tlsFront(t, ofPlain.Addr())
	cfg := func(sentinel string, servers, sentinels *tls.Config) Config {
		return Config{Topology: Sentinel, Master: "m", Addrs: []string{sentinel}, TLS: servers, SentinelTLS: sentinels}
	}
	ready(t, cfg(ofTLS.Addr(), with, NoTLS))
	ready(t, cfg(ofPlainTLS, nil, &tls.Config{RootCAs: sentinelRoots}))

	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{cfg(ofTLS.Addr(), nil, nil), "handshake with " + serverTLS + ": the server speaks TLS on this port: connect with rediss+sentinel://"},
		{cfg(quietInTLS(t, ofTLS.Addr()), with, nil), ": this sentinel does not speak TLS on this port: set sentinel_tls=off"},
		{cfg(ofPlainTLS, nil, nil), "handshake with sentinel " + ofPlainTLS + ": this sentinel speaks TLS on this port: set sentinel_tls=on"},
		{cfg(ofPlainTLS, with, &tls.Config{RootCAs: sentinelRoots}), "TLS handshake with " + serverPlain + ": the server does not speak TLS on this port"},
	} {
		if text := mismatch(t, c.cfg); !strings.Contains(text, c.want) {
			t.Errorf("%s\nlacks %s", text, c.want)
		}
	}
}

// A server that only closes the connection may be a proxy whose server is not up yet.
func TestConnect_ClosedBeforeTheAnswer_IsNoMismatch(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	n.On(fakenode.Is("CLIENT"), fakenode.Close())
	c := open(t, Config{Addr: n.Addr()})
	eventually(t, "an attempt fails", func() bool { return c.LastError(RoleLane, 0) != nil })
	if err := c.LastError(RoleLane, 0); errors.Is(err, ErrTLSMismatch) || !errors.Is(err, ErrHandshake) || errors.Is(err, ErrDial) || !strings.Contains(err.Error(), "whether it expects TLS") {
		t.Error(err)
	}
}

// Sentinels' passwords rotate as those of servers do.
func TestSentinelCredentials_AreAskedForAtEachHandshake(t *testing.T) {
	t.Parallel()
	server, sentinel := fakenode.New(t), fakenode.New(t)
	server.On(roles, roleOfPrimaryOf())
	naming(sentinel, server.Addr(), 1, sentinel)
	c := ready(t, Config{Topology: Sentinel, Master: "m", Addrs: []string{sentinel.Addr()}, Password: "of-servers",
		SentinelCredentials: func(context.Context) (string, string, error) { return "guard", "of-sentinels", nil }})
	sentinel.WaitFor(1, fakenode.Is("AUTH", "guard", "of-sentinels"))
	serves(t, c, 0, server.Addr())
	if len(sentinel.Commands(fakenode.Is("AUTH", "of-servers"))) > 0 || len(server.Commands(fakenode.Is("AUTH", "guard"))) > 0 {
		t.Error("the credentials of one side were shown to the other")
	}
}

// A certificate that is replaced is taken at the next handshake; what cannot be read connects
// to nobody.
func TestRefreshTLS_IsAskedAtEachHandshake(t *testing.T) {
	t.Parallel()
	addr, roots := tlsFront(t, fakenode.New(t).Addr())
	var mu sync.Mutex
	trusted, broken := false, error(nil)
	cfg := Config{Addr: addr, TLS: new(tls.Config), RefreshTLS: func(c *tls.Config) error {
		mu.Lock()
		defer mu.Unlock()
		if trusted {
			c.RootCAs = roots
		}
		return broken
	}}
	c := open(t, cfg)
	if err := c.WaitReady(testContext(t)); !errors.As(err, new(*tls.CertificateVerificationError)) {
		t.Fatalf("WaitReady: %v", err)
	}
	mu.Lock()
	trusted = true
	mu.Unlock()
	eventually(t, "it is up", func() bool { return c.Up(RoleLane, 0) })
	if cfg.TLS.RootCAs != nil {
		t.Error("the caller's configuration was changed")
	}

	mu.Lock()
	broken = errors.New("no such file")
	mu.Unlock()
	c = open(t, cfg)
	eventually(t, "it fails", func() bool { return errors.Is(c.LastError(RoleLane, 0), broken) })
}
