package resp

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/pace"
	"github.com/pawl-lock/pawl/resp/wire"
)

// The tests of lanes run over every way to carry bytes. In a build without gnet
// the gnet rows run on std, which is what such a build does.
var carriers = []carrier{
	{name: "gnet-tcp", network: "tcp"},
	{name: "gnet-unix", network: "unix"},
	{name: "gnet-tcp-wake", network: "tcp", inlineDepth: -1},
	{name: "std-tcp", network: "tcp", forceStd: true},
	{name: "std-tls", network: "tcp", tls: true},
}

type carrier struct {
	name        string
	network     string
	forceStd    bool
	tls         bool
	inlineDepth int
}

// eachCarrier runs test over every carrier, in parallel.
func eachCarrier(t *testing.T, test func(t *testing.T, w *world)) {
	t.Parallel()
	for _, c := range carriers {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			test(t, newWorld(t, c))
		})
	}
}

// world is a listener, played by the test, and loops.
type world struct {
	t        testing.TB
	carrier  carrier
	loops    *loops
	listener net.Listener
}

func newWorld(t testing.TB, c carrier) *world {
	t.Helper()
	addr := "127.0.0.1:0"
	if c.network == "unix" {
		addr = filepath.Join(t.TempDir(), "s")
	}
	ln, err := net.Listen(c.network, addr)
	if err != nil {
		t.Fatal(err)
	}
	ls := newLoops(1, c.forceStd, func(err error) { t.Errorf("no event loops: %v", err) })
	t.Cleanup(func() {
		ln.Close()
		if err := ls.close(); err != nil {
			t.Errorf("closing the loops: %v", err)
		}
	})
	return &world{t: t, carrier: c, loops: ls, listener: ln}
}

// connect returns both ends of a new connection, the client's one greeted; tune
// may set socket options.
func (w *world) connect(tune func(client, server net.Conn)) (client, server net.Conn) {
	w.t.Helper()
	client, server = w.connectPlain()
	if tune != nil {
		tune(client, server)
	}
	if !w.carrier.tls {
		return client, server
	}
	ts := tls.Server(server, &tls.Config{Certificates: []tls.Certificate{testCertificate()}})
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

// connectPlain is connect below any TLS.
func (w *world) connectPlain() (client, server net.Conn) {
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

var testCertificate = sync.OnceValue(func() tls.Certificate {
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

// testLane is a lane whose down calls can be awaited.
type testLane struct {
	*lane
	downs chan error
}

func (w *world) newLane(change func(*laneConfig)) *testLane {
	tl := &testLane{downs: make(chan error, 16)}
	cfg := laneConfig{
		clock:          clock.System(),
		commandTimeout: 3 * time.Second,
		maxInFlight:    1 << 14,
		maxQueuedBytes: 4 << 20,
		inlineDepth:    w.carrier.inlineDepth,
		down:           func(err error) { tl.downs <- err },
	}
	if change != nil {
		change(&cfg)
	}
	tl.lane = newLane(cfg)
	return tl
}

// attached returns a lane that is up, and the server's end of its connection.
func (w *world) attached(change func(*laneConfig), tune func(client, server net.Conn)) (*testLane, net.Conn) {
	w.t.Helper()
	l := w.newLane(change)
	client, server := w.connect(tune)
	if err := l.attach(w.loops, client); err != nil {
		w.t.Fatal(err)
	}
	return l, server
}

// call is a Request that asks the server to echo a number.
type call struct {
	n     int
	pad   string
	done  chan struct{}
	reply Reply
	times int
	then  func(Reply)
}

func newCall(n int) *call { return &call{n: n, done: make(chan struct{})} }

func (c *call) AppendCommand(dst []byte, form Form) []byte {
	word := "ECHO"
	if form == Whole {
		word = "WHOLE"
	}
	return wire.AppendCommand(dst, word, strconv.Itoa(c.n), c.pad)
}

func (c *call) Complete(r Reply) {
	c.times++
	if c.times > 1 {
		panic("completed twice")
	}
	c.reply = r
	c.reply.Value = r.Value.Clone()
	if c.then != nil {
		c.then(r)
	}
	close(c.done)
}

// await waits for the outcome.
func (c *call) await(t testing.TB) Reply {
	t.Helper()
	receive(t, c.done, "the outcome of call "+strconv.Itoa(c.n))
	return c.reply
}

const lanePatience = 20 * time.Second

func receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	ctx, cancel := pace.WithTimeout(context.Background(), lanePatience)
	defer cancel()
	select {
	case v := <-ch:
		return v
	case <-ctx.Done():
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

// pollUntil waits for a condition that nobody signals.
func pollUntil(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for start := pace.Now(); !cond(); time.Sleep(50 * time.Microsecond) {
		if start.Elapsed() > lanePatience {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// readCommands parses the commands that arrive on conn, and calls serve for
// each, until conn ends or serve returns false.
func readCommands(conn net.Conn, serve func(words []string) bool) {
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

// echo answers ECHO n with the integer n until conn ends.
func echo(conn net.Conn) {
	readCommands(conn, func(words []string) bool {
		_, err := conn.Write([]byte(":" + words[1] + "\r\n"))
		return err == nil
	})
}
