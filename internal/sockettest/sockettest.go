// Package sockettest gives tests both ends of real connections, over each way to carry
// bytes, and the small waits that such tests need.
package sockettest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/resp/wire"
)

// The tests of lanes run over every way to carry bytes. In a build without gnet
// the gnet rows run on std, which is what such a build does.
var Carriers = []Carrier{
	{Name: "gnet-tcp", Network: "tcp"},
	{Name: "gnet-unix", Network: "unix"},
	{Name: "gnet-tcp-wake", Network: "tcp", InlineDepth: -1},
	{Name: "std-tcp", Network: "tcp", ForceStd: true},
	{Name: "std-tls", Network: "tcp", TLS: true},
}

type Carrier struct {
	Name        string
	Network     string
	ForceStd    bool
	TLS         bool
	InlineDepth int
}

// World is a listener, played by the test.
type World struct {
	t        testing.TB
	Carrier  Carrier
	listener net.Listener
}

func NewWorld(t testing.TB, c Carrier) *World {
	t.Helper()
	addr := "127.0.0.1:0"
	if c.Network == "unix" {
		addr = filepath.Join(t.TempDir(), "s")
	}
	ln, err := net.Listen(c.Network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return &World{t: t, Carrier: c, listener: ln}
}

// Connect returns both ends of a new connection, the client's one greeted; tune
// may set socket options.
func (w *World) Connect(tune func(client, server net.Conn)) (client, server net.Conn) {
	w.t.Helper()
	client, server = w.ConnectPlain()
	if tune != nil {
		tune(client, server)
	}
	if !w.Carrier.TLS {
		return client, server
	}
	ts := tls.Server(server, &tls.Config{Certificates: []tls.Certificate{Certificate()}})
	tc := tls.Client(client, &tls.Config{InsecureSkipVerify: true})
	shaken := make(chan error, 1)
	go func() { shaken <- ts.Handshake() }()
	if err := tc.Handshake(); err != nil {
		w.t.Fatal(err)
	}
	if err := <-shaken; err != nil {
		w.t.Fatal(err)
	}
	return tc, ts
}

// ConnectPlain is Connect below any TLS.
func (w *World) ConnectPlain() (client, server net.Conn) {
	w.t.Helper()
	client, err := net.Dial(w.listener.Addr().Network(), w.listener.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	server, err = w.listener.Accept()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { server.Close() })
	return client, server
}

var Certificate = sync.OnceValue(func() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)},
		&x509.Certificate{SerialNumber: big.NewInt(1)}, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
})

const Patience = 20 * time.Second

func Receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	ctx, cancel := cputime.WithTimeout(context.Background(), Patience)
	defer cancel()
	select {
	case v := <-ch:
		return v
	case <-ctx.Done():
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

// PollUntil waits for a condition that nobody signals.
func PollUntil(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for start := cputime.Now(); !cond(); time.Sleep(50 * time.Microsecond) {
		if start.Elapsed() > Patience {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// ReadCommands parses the commands that arrive on conn, and calls serve for
// each, until conn ends or serve returns false.
func ReadCommands(conn net.Conn, serve func(words []string) bool) {
	buf := make([]byte, 32<<10)
	var in []byte
	var d wire.Decoder
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		in = append(in, buf[:n]...)
		for {
			v, n, err := d.Decode(in)
			if err != nil || n == 0 {
				break
			}
			var words []string
			v.Each(func(_ int, e wire.Value) bool {
				words = append(words, string(e.Bytes))
				return true
			})
			in = in[n:]
			if !serve(words) {
				return
			}
		}
	}
}

// Echo answers ECHO n with the integer n until conn ends.
func Echo(conn net.Conn) {
	ReadCommands(conn, func(words []string) bool {
		_, err := conn.Write([]byte(":" + words[1] + "\r\n"))
		return err == nil
	})
}

// WantSilence checks, with both ends of some connections, that nothing has been
// sent over them, and closes them.
func WantSilence(t *testing.T, conns []net.Conn) {
	t.Helper()
	for _, c := range conns {
		if c, ok := c.(interface{ CloseWrite() error }); ok {
			c.CloseWrite()
		}
	}
	for _, c := range conns {
		if b, _ := io.ReadAll(c); len(b) > 0 {
			t.Fatalf("a stranger's connection got %q", b)
		}
		c.Close()
	}
}

// Rand returns a source of randomness whose seed the test prints.
func Rand(t testing.TB) *mathrand.Rand {
	seed := mathrand.Uint64()
	t.Logf("seed %d", seed)
	return mathrand.New(mathrand.NewPCG(seed, 0))
}
