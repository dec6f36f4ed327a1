package pipeline

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/internal/sockettest"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
	"github.com/pawl-lock/pawl/resp/wire"
)

func TestLane_Commands_GetReplies(t *testing.T) {
	eachCarrier(t, func(t *testing.T, w *world) {
		l, server := w.attached(nil, nil)
		go sockettest.Echo(server)
		for i := range 100 {
			c := requesttest.NewCall(i)
			l.Submit(c)
			r := c.Await(t)
			if r.Err != nil || r.Value.Kind != wire.KindInt || r.Value.Int != int64(i) {
				t.Fatalf("call %d: got %+v", i, r)
			}
			if r.Sent == 0 || r.Now.Before(r.Sent) {
				t.Fatalf("call %d: sent %v, answered %v", i, r.Sent, r.Now)
			}
		}
	})
}

// smallBuffers makes the kernel take little at a time. The receive buffers stay:
// over loopback, whose segments are large, small ones leave TCP waiting for its
// timers.
func smallBuffers(client, server net.Conn) {
	for _, c := range []net.Conn{client, server} {
		if c, ok := c.(interface{ SetWriteBuffer(int) error }); ok {
			c.SetWriteBuffer(4 << 10)
		}
	}
}

// A server that answers with long replies and does not read on until the client
// has taken them stops a client that does not read while it writes.
func TestLane_Load_MatchesReplies(t *testing.T) {
	for _, load := range []struct {
		name         string
		tune         func(client, server net.Conn)
		request      int // most bytes of a request, about
		reply        int // bytes of a reply
		inFlight     int // per goroutine
		perGoroutine int
	}{
		{name: "small", inFlight: 1, perGoroutine: 100},
		{name: "pipelined", inFlight: 16, perGoroutine: 80},
		{name: "long requests, small buffers", tune: smallBuffers, request: 4000, inFlight: 8, perGoroutine: 20},
		{name: "long replies, small buffers", tune: smallBuffers, request: 200, reply: 5000, inFlight: 8, perGoroutine: 20},
	} {
		t.Run(load.name, func(t *testing.T) {
			eachCarrier(t, func(t *testing.T, w *world) {
				l, server := w.attached(nil, load.tune)
				padding := strings.Repeat("r", load.reply)
				go sockettest.ReadCommands(server, func(words []string) bool {
					_, err := fmt.Fprintf(server, "$%d\r\n%s%s\r\n", len(words[1])+len(padding), words[1], padding)
					return err == nil
				})
				const goroutines = 64
				var all sync.WaitGroup
				for g := range goroutines {
					all.Go(func() {
						rng := rand.New(rand.NewPCG(uint64(g), 1))
						var flying []*requesttest.Call
						for i := range load.perGoroutine {
							c := requesttest.NewCall(g*load.perGoroutine + i)
							if load.request > 0 {
								c.Pad = strings.Repeat("q", rng.IntN(load.request))
							}
							l.Submit(c)
							if flying = append(flying, c); len(flying) < load.inFlight {
								continue
							}
							r := flying[0].Await(t)
							if want := strconv.Itoa(flying[0].N) + padding; r.Err != nil || string(r.Value.Bytes) != want {
								t.Errorf("call %d: got %.20q, %v", flying[0].N, r.Value.Bytes, r.Err)
							}
							flying = flying[1:]
						}
						for _, c := range flying {
							c.Await(t)
						}
					})
				}
				all.Wait()
			})
		})
	}
}

// The server's view is the oracle: what it has received in whole must have been
// reported as of unknown outcome, and what was reported as not sent must not have
// reached it.
func TestLane_ConnectionEnds_KnowsWhatWasNotSent(t *testing.T) {
	eachCarrier(t, func(t *testing.T, w *world) {
		l, server := w.attached(nil, smallBuffers)
		const n = 8000
		calls := make([]*requesttest.Call, n)
		pad := strings.Repeat("x", 100)
		for i := range calls {
			calls[i] = requesttest.NewCall(i)
			calls[i].Pad = pad
			l.Submit(calls[i])
		}
		// The lane ends with the first commands read and the server reading no more.
		var received int
		begun, closed, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(over)
			sockettest.ReadCommands(server, func([]string) bool {
				if received++; received == 1 {
					close(begun)
					<-closed
				}
				return true
			})
		}()
		<-begun
		l.Close(request.ErrClosed)
		close(closed)
		<-over

		var unknown, notSent int
		for _, c := range calls {
			switch err := c.Await(t).Err; {
			case errors.Is(err, request.ErrLaneFull):
			case errors.Is(err, request.ErrOutcomeUnknown):
				if unknown++; notSent > 0 {
					t.Fatalf("call %d may have been received, one before it not", c.N)
				}
			case errors.Is(err, request.ErrNotSent):
				notSent++
			default:
				t.Fatalf("call %d: %v", c.N, err)
			}
		}
		t.Logf("received %d, unknown %d, not sent %d", received, unknown, notSent)
		if received == 0 || received > unknown {
			t.Errorf("the server received %d commands, only %d were reported as possible", received, unknown)
		}
		if notSent == 0 {
			t.Error("the kernel took everything; the test shows nothing")
		}
		if slack := maxHandOver/len(pad) + 1; unknown-received > slack {
			t.Errorf("%d commands in doubt that were never sent, want at most %d", unknown-received, slack)
		}
	})
}

// unruly serves one connection and breaks it at a random moment, in a random
// way. It records what it has executed.
type unruly struct {
	mu       sync.Mutex
	executed map[int]int // call -> times
	order    []int
}

func (u *unruly) serve(conn net.Conn, rng *rand.Rand) {
	left := 1 + rng.IntN(400)
	way := rng.IntN(4)
	sockettest.ReadCommands(conn, func(words []string) bool {
		n, _ := strconv.Atoi(words[1])
		u.mu.Lock()
		u.executed[n]++
		u.order = append(u.order, n)
		u.mu.Unlock()
		if left--; left > 0 {
			_, err := conn.Write([]byte(":" + words[1] + "\r\n"))
			return err == nil
		}
		switch way {
		case 0: // executed, no reply, FIN
		case 1: // RST
			if c, ok := conn.(*net.TCPConn); ok {
				c.SetLinger(0)
			}
		case 2: // half a reply
			conn.Write([]byte(":1"))
		case 3: // garbage
			conn.Write([]byte("garbage\r\n"))
		}
		return false
	})
	conn.Close()
}

func TestLane_UnrulyServers_EveryRequestCompletes(t *testing.T) {
	const goroutines, connections = 16, 25
	eachCarrier(t, func(t *testing.T, w *world) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		u := &unruly{executed: make(map[int]int)}
		l := w.newLane(nil)

		var calls [goroutines][]*requesttest.Call
		var stop atomic.Bool
		var submitters, servers sync.WaitGroup
		for g := range goroutines {
			submitters.Go(func() {
				for i := 0; !stop.Load(); i++ {
					c := requesttest.NewCall(i*goroutines + g)
					c.Pad = strings.Repeat("p", i%300)
					calls[g] = append(calls[g], c)
					l.Submit(c)
					if i%4 == 0 && errors.Is(c.Await(t).Err, request.ErrDown) {
						sockettest.PollUntil(t, "the lane to be up", func() bool { return l.Err() == nil || stop.Load() })
					}
				}
			})
		}
		for range connections {
			tune := func(net.Conn, net.Conn) {}
			if rng.IntN(2) == 0 {
				tune = smallBuffers
			}
			client, server := w.Connect(tune)
			serverRng := rand.New(rand.NewPCG(rng.Uint64(), 0))
			servers.Go(func() { u.serve(server, serverRng) })
			if err := l.Attach(w.loops, client); err != nil {
				t.Fatal(err)
			}
			sockettest.Receive(t, l.downs, "the end of the connection")
		}
		stop.Store(true)
		submitters.Wait()
		servers.Wait()

		last := map[int]int{}
		for _, n := range u.order {
			if g := n % goroutines; last[g] > n {
				t.Fatalf("goroutine %d: call %d was executed after %d", g, n, last[g])
			}
			last[n%goroutines] = n
		}
		var answered, unknown, notSent int
		for _, c := range slices.Concat(calls[:]...) {
			r := c.Await(t)
			switch times := u.executed[c.N]; {
			case times > 1:
				t.Fatalf("call %d was executed %d times", c.N, times)
			case r.Err == nil:
				answered++
				if times != 1 || r.Value.Int != int64(c.N) {
					t.Fatalf("call %d, executed %d times, was answered %d", c.N, times, r.Value.Int)
				}
			case errors.Is(r.Err, request.ErrNotSent):
				notSent++
				if times != 0 || r.Sent != 0 {
					t.Fatalf("call %d was executed, and reported as %v", c.N, r.Err)
				}
			case errors.Is(r.Err, request.ErrOutcomeUnknown):
				unknown++
				if r.Sent == 0 {
					t.Fatalf("call %d: %v, without a stamp", c.N, r.Err)
				}
			default:
				t.Fatalf("call %d: %v", c.N, r.Err)
			}
		}
		t.Logf("answered %d, unknown %d, not sent %d", answered, unknown, notSent)
		if answered == 0 || unknown == 0 || notSent == 0 {
			t.Error("an outcome is missing; the test shows little")
		}
	})
}

func TestLane_CloseUnderLoad_CompletesAll(t *testing.T) {
	eachCarrier(t, func(t *testing.T, w *world) {
		l, server := w.attached(nil, nil)
		go sockettest.Echo(server)
		var answered atomic.Int64
		running := make(chan struct{})
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				for i := 0; ; i++ {
					c := requesttest.NewCall(i)
					l.Submit(c)
					err := c.Await(t).Err
					if errors.Is(err, request.ErrClosed) {
						return
					}
					if err != nil {
						t.Errorf("call %d: %v", i, err)
						return
					}
					if answered.Add(1) == 100 {
						close(running)
					}
				}
			})
		}
		sockettest.Receive(t, running, "traffic")
		l.Close(request.ErrClosed)
		all.Wait()
		if err := sockettest.Receive(t, l.downs, "down"); err != request.ErrClosed {
			t.Errorf("down with %v, want ErrClosed", err)
		}
		client, _ := w.Connect(nil)
		if err := l.Attach(w.loops, client); err != request.ErrClosed {
			t.Errorf("attach after close: %v, want ErrClosed", err)
		}
	})
}

func TestLane_BlackHole_IsGivenUp(t *testing.T) {
	eachCarrier(t, func(t *testing.T, w *world) {
		l, server := w.attached(nil, smallBuffers)
		var calls []*requesttest.Call
		for i := range 3000 {
			c := requesttest.NewCall(i)
			c.Pad = strings.Repeat("x", 500)
			calls = append(calls, c)
			l.Submit(c)
		}
		if _, err := server.Read(make([]byte, 1)); err != nil { // the first has been written
			t.Fatal(err)
		}
		now := l.cfg.Clock.Now()
		l.CheckAge(now)
		l.CheckAge(now.Add(l.cfg.CommandTimeout - time.Second))
		if l.Err() != nil {
			t.Fatal("gave up early")
		}
		l.CheckAge(now.Add(l.cfg.CommandTimeout + time.Second))
		if err := sockettest.Receive(t, l.downs, "down"); err != request.ErrTimeout {
			t.Errorf("down with %v, want ErrTimeout", err)
		}
		if err := calls[0].Await(t).Err; !errors.Is(err, request.ErrOutcomeUnknown) || !errors.Is(err, request.ErrTimeout) {
			t.Errorf("the first call: %v", err)
		}
		if err := calls[len(calls)-1].Await(t).Err; !errors.Is(err, request.ErrNotSent) || !errors.Is(err, request.ErrTimeout) {
			t.Errorf("the last call: %v", err)
		}
	})
}

// deceptive is a connection of a custom dialer: its Write sends, and says it
// did not.
type deceptive struct{ net.Conn }

func (c deceptive) Write(b []byte) (int, error) {
	c.Conn.Write(b)
	return 0, io.ErrShortWrite
}

func TestLane_WriteFailsOnAnUnknownConnection_OutcomeIsUnknown(t *testing.T) {
	eachCarrier(t, func(t *testing.T, w *world) {
		l := w.newLane(nil)
		client, _ := w.Connect(nil)
		if err := l.Attach(w.loops, deceptive{client}); err != nil {
			t.Fatal(err)
		}
		c := requesttest.NewCall(1)
		l.Submit(c)
		if err := c.Await(t).Err; !errors.Is(err, request.ErrOutcomeUnknown) || !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("got %v, want an unknown outcome", err)
		}
	})
}

// treacherous is a connection of a custom dialer that becomes deceptive.
type treacherous struct {
	net.Conn
	turned atomic.Bool
}

func (c *treacherous) Write(b []byte) (int, error) {
	if c.turned.Load() {
		return deceptive{c.Conn}.Write(b)
	}
	return c.Conn.Write(b)
}

// TLS tells how much of a command it gave to the connection below. What that one did
// with it, nobody knows, unless it is the operating system's.
func TestLane_WriteFailsOnTLSOverAnUnknownConnection_OutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sockettest.Carrier{Network: "tcp"})
	client, server := w.ConnectPlain()
	below := &treacherous{Conn: client}
	front := tls.Server(server, &tls.Config{Certificates: []tls.Certificate{sockettest.Certificate()}})
	got := make(chan []string, 1)
	go sockettest.ReadCommands(front, func(words []string) bool { got <- words; return false })
	secure := tls.Client(below, &tls.Config{InsecureSkipVerify: true})
	if err := secure.Handshake(); err != nil {
		t.Fatal(err)
	}
	l := w.newLane(nil)
	if err := l.Attach(w.loops, secure); err != nil {
		t.Fatal(err)
	}
	below.turned.Store(true)
	c := requesttest.NewCall(1)
	l.Submit(c)
	if err := c.Await(t).Err; !errors.Is(err, request.ErrOutcomeUnknown) || !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("got %v, want an unknown outcome: the server received %q", err, sockettest.Receive(t, got, "the command"))
	}
}

// Below TLS is a connection of the operating system: a command that it took in part
// was not sent, for nobody can read half a record.
func TestLane_WriteFailsOnTLS_NotSentIsKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sockettest.Carrier{Network: "tcp", TLS: true})
	l, server := w.attached(nil, nil)
	c := requesttest.NewCall(1)
	c.Pad = strings.Repeat("x", 16<<20) // more than the kernel takes while nobody reads
	l.Submit(c)
	sockettest.PollUntil(t, "the kernel is full", func() bool { return l.Counters().InFlight == 1 })
	server.(*tls.Conn).NetConn().Close()
	if err := c.Await(t).Err; !errors.Is(err, request.ErrNotSent) {
		t.Errorf("got %v, want not sent", err)
	}
}

// A late write must not reach a descriptor that the kernel has given to another
// connection in the meantime. Each round ends a connection under the feet of
// writers, and opens new ones, which take over its number.
func TestLane_DescriptorReused_IsNotWritten(t *testing.T) {
	eachCarrier(t, func(t *testing.T, w *world) {
		for range 50 {
			l, server := w.attached(nil, nil)
			go sockettest.Echo(server)
			var writers sync.WaitGroup
			for range 4 {
				writers.Go(func() {
					for i := 0; ; i++ {
						c := requesttest.NewCall(i)
						l.Submit(c)
						if c.Await(t).Err != nil {
							return
						}
					}
				})
			}
			sockettest.PollUntil(t, "traffic", func() bool { return l.Counters().Commands > 20 })
			server.Close()
			var fresh []net.Conn
			for range 4 {
				client, server := w.ConnectPlain()
				fresh = append(fresh, client, server)
			}
			writers.Wait()
			sockettest.WantSilence(t, fresh)
		}
	})
}

// scriptCall is a script call whose reply can be awaited.
type scriptCall struct {
	sha, text, key string
	done           chan request.Reply
}

func (c *scriptCall) AppendCommand(dst []byte, form request.ScriptForm) []byte {
	if form == request.Eval {
		return wire.AppendCommand(dst, "EVAL", c.text, "1", c.key)
	}
	return wire.AppendCommand(dst, "EVALSHA", c.sha, "1", c.key)
}

func (c *scriptCall) Complete(r request.Reply) {
	r.Value = r.Value.Clone()
	c.done <- r
}

// Each call counts once, though the server keeps forgetting the script.
func TestLane_ScriptCacheFlushed_EachCallCountsOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const text = `return redis.call('incr', KEYS[1])`
	sha := server.Do("SCRIPT", "LOAD", text).(string)
	for _, c := range []sockettest.Carrier{{Name: "gnet", Network: "tcp"}, {Name: "std", Network: "tcp", ForceStd: true}} {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c)
			l := w.newLane(nil)
			conn, err := net.Dial("unix", server.Socket())
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Attach(w.loops, conn); err != nil {
				t.Fatal(err)
			}
			const goroutines, each = 8, 200
			var all sync.WaitGroup
			for g := range goroutines {
				all.Go(func() {
					call := &scriptCall{sha: sha, text: text, key: c.Name, done: make(chan request.Reply, 1)}
					for i := range each {
						if g == 0 && i%10 == 0 {
							server.Do("SCRIPT", "FLUSH")
						}
						l.Submit(call)
						if r := sockettest.Receive(t, call.done, "a reply"); r.Err != nil || r.Value.Kind != wire.KindInt {
							t.Errorf("got %+v", r)
						}
					}
				})
			}
			all.Wait()
			last := &scriptCall{sha: sha, text: text, key: c.Name, done: make(chan request.Reply, 1)}
			l.Submit(last)
			if r := sockettest.Receive(t, last.done, "the count"); r.Value.Int != goroutines*each+1 {
				t.Errorf("counted %d, want %d", r.Value.Int, goroutines*each+1)
			}
			if l.Counters().Resent == 0 {
				t.Error("nothing was sent again; the test shows nothing")
			}
		})
	}
}
