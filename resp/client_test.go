package resp

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/embedded"
	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
	"github.com/pawl-lock/pawl/resp/wire"
)

// clientPatience is how long a test waits for what must happen; a healthy run needs a
// small part of it.
const clientPatience = 20 * time.Second

// eventually fails the test if cond does not come true.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for start := cputime.Now(); !cond(); {
		if start.Elapsed() > clientPatience {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond) // a poll, bounded above
	}
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := cputime.WithTimeout(context.Background(), clientPatience)
	t.Cleanup(cancel)
	return ctx
}

// open returns a Client of cfg that the test closes.
func open(t *testing.T, cfg Config) *Client {
	t.Helper()
	c := Open(cfg)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

// ready is open and WaitReady.
func ready(t *testing.T, cfg Config) *Client {
	t.Helper()
	c := open(t, cfg)
	if err := c.WaitReady(testContext(t)); err != nil {
		t.Fatalf("WaitReady: %v", err)
	}
	return c
}

// eachTransport runs f once per transport, with a Config that selects it.
func eachTransport(t *testing.T, f func(t *testing.T, cfg Config)) {
	t.Run("auto", func(t *testing.T) { t.Parallel(); f(t, Config{Transport: TransportAuto}) })
	t.Run("std", func(t *testing.T) { t.Parallel(); f(t, Config{Transport: TransportStd}) })
}

func TestClient_Commands_GoThroughEveryConnection(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	eachTransport(t, func(t *testing.T, cfg Config) {
		cfg.Addr, cfg.Lanes = s.Addr(), 3
		c := ready(t, cfg)
		ctx := testContext(t)
		if v, err := c.Do(ctx, "SET", t.Name(), "x"); err != nil || string(v.Bytes) != "OK" {
			t.Fatalf("SET: %+v, %v", v, err)
		}
		for hash := range uint64(3) {
			r := &doRequest{words: []string{"GET", t.Name()}, done: make(chan struct{})}
			c.Submit(hash, r)
			<-r.done
			if r.err != nil || string(r.value.Bytes) != "x" {
				t.Fatalf("GET on lane %d: %+v, %v", hash, r.value, r.err)
			}
		}
		r := &doRequest{words: []string{"GET", t.Name()}, done: make(chan struct{})}
		c.SubmitRenewal(0, r)
		<-r.done
		if r.err != nil || string(r.value.Bytes) != "x" {
			t.Fatalf("GET on the renewal connection: %+v, %v", r.value, r.err)
		}
		if st := c.Stats(); st.Connections != 5 || st.Commands < 5 || st.BytesIn == 0 || st.BytesOut == 0 {
			t.Errorf("stats: %+v", st)
		}
	})
}

func TestClient_UnixSocket_ServesAndReportsErrors(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := ready(t, Config{Network: "unix", Addr: s.Socket()})
	_, err := c.Do(testContext(t), "HGET", "a")
	if e := (*ServerError)(nil); !errors.As(err, &e) || e.Code != "ERR" {
		t.Fatalf("a wrong command: %v", err)
	}
}

func TestClient_Scripts_AreLoadedByTheHandshake(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	script := "return redis.call('incr', KEYS[1])"
	c := ready(t, Config{Addr: s.Addr(), Scripts: []string{script, "return 1"}})
	sum := sha1.Sum([]byte(script))
	v, err := c.Do(testContext(t), "SCRIPT", "EXISTS", hex.EncodeToString(sum[:]))
	loaded := false
	v.Each(func(_ int, e Value) bool { loaded = e.Int == 1; return false })
	if err != nil || !loaded {
		t.Fatalf("SCRIPT EXISTS: %+v, %v", v, err)
	}
}

func TestClient_DatabaseAndName_AreSetOnEveryConnection(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := ready(t, Config{Addr: s.Addr(), DB: 7, ClientName: "some-service"})
	v, err := c.Do(testContext(t), "CLIENT", "LIST")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(v.Bytes)) {
		if strings.Contains(line, " name=some-service ") && strings.Contains(line, " db=7 ") {
			n++
		}
	}
	if want := c.Stats().Connections; n != want || want < 3 {
		t.Fatalf("%d of %d connections are in DB 7 under their name:\n%s", n, want, v.Bytes)
	}
}

func TestClient_DoContextEnds_Returns(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := ready(t, Config{Addr: s.Addr()})
	s.Stop()
	defer s.Cont()
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("changed my mind")
	go cancel(why)
	if _, err := c.Do(ctx, "PING"); !errors.Is(err, why) {
		t.Fatalf("Do: %v", err)
	}
}

func TestClient_Closed_Refuses(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := ready(t, Config{Addr: s.Addr()})
	for range 2 {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Do(testContext(t), "PING"); !errors.Is(err, ErrClosed) || !errors.Is(err, ErrNotSent) {
		t.Errorf("Do: %v", err)
	}
	if err := c.WaitReady(testContext(t)); !errors.Is(err, ErrClosed) {
		t.Errorf("WaitReady: %v", err)
	}
}

func TestClient_CloseUnderLoad_CompletesEveryRequest(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	eachTransport(t, func(t *testing.T, cfg Config) {
		cfg.Addr, cfg.Lanes = s.Addr(), 2
		c := ready(t, cfg)
		l := &load{client: c}
		for i := range 64 {
			l.add(uint64(i))
		}
		eventually(t, "traffic", func() bool { return l.answered.Load() > 1000 })
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if n := l.open.Load(); n != 0 {
			t.Fatalf("%d requests are still open after Close", n)
		}
	})
}

// load is a closed loop of requests: each reply submits the next one.
type load struct {
	client         *Client
	open, answered atomic.Int64
}

type loadRequest struct {
	load *load
	hash uint64
}

func (l *load) add(hash uint64) {
	l.open.Add(1)
	l.client.Submit(hash, &loadRequest{load: l, hash: hash})
}

func (r *loadRequest) AppendCommand(dst []byte, _ ScriptForm) []byte {
	return wire.AppendCommand(dst, "PING")
}

func (r *loadRequest) Complete(reply Reply) {
	defer r.load.open.Add(-1)
	if reply.Err == nil {
		r.load.answered.Add(1)
		r.load.add(r.hash)
	}
}

// fork returns a source of its own for another goroutine.
func fork(r *rand.Rand) *rand.Rand { return rand.New(rand.NewPCG(r.Uint64(), r.Uint64())) }

func TestClient_CloseWhileSubscribing_Returns(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, cfg Config) {
		s := redistest.Start(t)
		cfg.Addr = s.Addr()
		c := ready(t, cfg)
		var all requesttest.EventCounter
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for w := range 4 {
			wg.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					ch := NewChannel(fmt.Sprintf("%d/%d", w, i%1000), &all)
					c.Subscribe(ch)
					if i%3 > 0 {
						c.Unsubscribe(ch)
					}
				}
			})
		}
		eventually(t, "some are confirmed", func() bool { return all.Count(Subscribed) > 100 })
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		subscribed, disconnected := all.Count(Subscribed), all.Count(Disconnected)
		close(stop)
		wg.Wait()
		if all.Count(Subscribed) != subscribed || all.Count(Disconnected) != disconnected {
			t.Error("events after Close")
		}
	})
}

// databases has a node serve ECHO only in a database other than 0, as each connection has chosen it.
type databases struct {
	mu       sync.Mutex
	selected map[*fakenode.Conn]string
}

func (d *databases) play(n *fakenode.Node, answer string) {
	n.On(fakenode.Is("SELECT"), fakenode.Func(func(c *fakenode.Conn, cmd fakenode.Command) {
		d.mu.Lock()
		d.selected[c] = cmd.Words[1]
		d.mu.Unlock()
		c.Write([]byte("+OK\r\n"))
	}))
	n.On(echoes, fakenode.Func(func(c *fakenode.Conn, _ fakenode.Command) {
		d.mu.Lock()
		db := d.selected[c]
		d.mu.Unlock()
		if db != "5" {
			c.Write([]byte("-ERR in database " + db + "\r\n"))
			return
		}
		c.Write([]byte(answer + "\r\n"))
	}))
}

// Clusters may have more databases than one. So the server is asked for it, on every connection: those that
// MOVED and ASK lead to as well.
func TestClient_DatabaseOfACluster_IsChosenWhereverACommandGoes(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"none", "MOVED", "ASK"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			d := &databases{selected: make(map[*fakenode.Conn]string)}
			f := newFakeCluster(t, 1)
			stranger := fakenode.New(t) // which no layout names
			d.play(stranger, ":1")
			at := ":1"
			if code != "none" {
				at = fmt.Sprintf("-%s 7 %s", code, stranger.Addr())
			}
			d.play(f.nodes[0], at)
			c := f.client(t, func(cfg *Config) { cfg.DB = 5 })
			eventually(t, "it is executed", func() bool { // once that node is connected
				call := requesttest.NewCall(1)
				c.Submit(7, call)
				r := call.Await(t)
				if refused := (*ServerError)(nil); errors.As(r.Err, &refused) {
					t.Fatal(refused)
				}
				return r.Err == nil && r.Value.Int == 1
			})
			if n := len(f.nodes[0].Commands(fakenode.Is("SELECT"))); n < 3 {
				t.Errorf("%d connections chose a database", n)
			}
		})
	}
}

// The server judges, and its refusal says what is wrong.
func TestClient_DatabaseRefusedByACluster_SaysSo(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"ERR SELECT is not allowed in cluster mode", "ERR DB index is out of range"} {
		f := newFakeCluster(t, 1)
		f.nodes[0].On(fakenode.Is("SELECT"), fakenode.Error(line))
		c := open(t, Config{Topology: Cluster, Addrs: []string{f.nodes[0].Addr()}, DB: 5, Sharding: ShardingOff})
		if err := c.WaitReady(testContext(t)); err == nil || !strings.Contains(err.Error(), line) || !strings.Contains(err.Error(), "SELECT") {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// The embedded server is what demos and users' tests run on.
func TestClient_EmbeddedServer_Serves(t *testing.T) {
	t.Parallel()
	s, err := embedded.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	eachTransport(t, func(t *testing.T, cfg Config) {
		cfg.Addr, cfg.Scripts = s.Addr(), []string{"return redis.call('publish', KEYS[1], ARGV[1])"}
		c := ready(t, cfg)
		rec := requesttest.NewRecorder()
		ch := NewChannel(t.Name(), rec)
		c.Subscribe(ch)
		rec.Await(t, Subscribed)
		if v, err := c.Do(testContext(t), "EVAL", cfg.Scripts[0], "1", t.Name(), "hi"); err != nil || v.Int != 1 {
			t.Fatalf("publish in a script: %+v, %v", v, err)
		}
		if got := rec.Await(t, Message); got != "hi" {
			t.Fatalf("message %q", got)
		}
		c.Unsubscribe(ch)
		eventually(t, "the channel is gone", func() bool { return c.Stats().Channels == 0 })
	})
}
