package fakenode

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/respio"
	"github.com/tidwall/redcon"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is a plain connection with a deadline, so that a lost answer fails.
type client struct {
	t testing.TB
	net.Conn
	r *respio.Reader
}

func dial(t testing.TB, n *Node) *client {
	t.Helper()
	nc, err := net.Dial(n.Network(), n.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &client{t, nc, respio.NewReader(nc)}
}

func (c *client) send(words ...string) {
	c.t.Helper()
	b := redcon.AppendArray(nil, len(words))
	for _, w := range words {
		b = redcon.AppendBulkString(b, w)
	}
	if _, err := c.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) want(raw string) {
	c.t.Helper()
	if got, _, err := c.r.Reply(); err != nil || string(got) != raw {
		c.t.Fatalf("got %q, %v; want %q", got, err, raw)
	}
}

func (c *client) wantEnd(target error) {
	c.t.Helper()
	if got, _, err := c.r.Reply(); !errors.Is(err, target) {
		c.t.Fatalf("got %q, %v; want %v", got, err, target)
	}
}

func (c *client) ask(raw string, words ...string) {
	c.t.Helper()
	c.send(words...)
	c.want(raw)
}

// overBoth runs a test over TCP and over a unix socket.
func overBoth(t *testing.T, f func(t *testing.T, opts ...Option)) {
	t.Parallel()
	t.Run("tcp", func(t *testing.T) { t.Parallel(); f(t) })
	t.Run("unix", func(t *testing.T) { t.Parallel(); f(t, Unix()) })
}

func TestNode_HandshakeAndScripts_AreAnswered(t *testing.T) {
	overBoth(t, func(t *testing.T, opts ...Option) {
		c := dial(t, New(t, opts...))
		c.ask("+OK\r\n", "AUTH", "user", "password")
		c.ask("+OK\r\n", "SELECT", "3")
		c.ask("+OK\r\n", "client", "SETNAME", "x")
		c.ask("+PONG\r\n", "PING")
		c.ask("$2\r\nhi\r\n", "PING", "hi")
		c.ask("$3\r\nyes\r\n", "ECHO", "yes")
		const sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db" // of "return 1"
		c.ask("-"+NoScript+"\r\n", "EVALSHA", sha, "0")
		c.ask("$40\r\n"+sha+"\r\n", "SCRIPT", "LOAD", "return 1")
		c.ask(":1\r\n", "EVALSHA", strings.ToUpper(sha), "0")
		c.ask("*2\r\n:1\r\n:0\r\n", "SCRIPT", "EXISTS", sha, "0000")
		c.ask("+OK\r\n", "SCRIPT", "FLUSH")
		c.ask("-"+NoScript+"\r\n", "EVALSHA", sha, "0")
		c.ask(":1\r\n", "EVAL", "return 1", "0")
		c.ask(":1\r\n", "EVALSHA", sha, "0")
		c.ask("-ERR wrong number of arguments for 'echo' command\r\n", "ECHO")
		c.ask("-ERR unknown command 'WHAT', the fake node has no rule for it\r\n", "WHAT")
		c.ask("+OK\r\n", "QUIT")
		c.wantEnd(io.EOF)
	})
}

func TestNode_Subscriptions_AreConfirmedAndServed(t *testing.T) {
	overBoth(t, func(t *testing.T, opts ...Option) {
		n := New(t, opts...)
		sub, pub := dial(t, n), dial(t, n)
		sub.send("SUBSCRIBE", "a", "b")
		sub.want("*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")
		sub.want("*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n")
		pub.ask(":1\r\n", "PUBLISH", "a", "hello")
		pub.ask(":0\r\n", "PUBLISH", "c", "nobody")
		sub.want("*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$5\r\nhello\r\n")
		sub.ask("*2\r\n$4\r\npong\r\n$0\r\n\r\n", "PING")
		sub.ask("*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:1\r\n", "UNSUBSCRIBE", "a")
		if got := n.Publish("a", "late"); got != 0 {
			t.Errorf("%d receivers after UNSUBSCRIBE", got)
		}
		sub.ask("*3\r\n$11\r\nunsubscribe\r\n$1\r\nb\r\n:0\r\n", "UNSUBSCRIBE")
		sub.ask("*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n", "UNSUBSCRIBE")
		sub.ask("+PONG\r\n", "PING")
	})
}

func TestNode_NewestRule_WinsUntilUsedUp(t *testing.T) {
	t.Parallel()
	n := New(t)
	c := dial(t, n)
	always := n.On(Is("GET"), Bulk("always"))
	twice := n.OnNext(2, Is("get", "K"), Error(Busy))
	c.ask("$6\r\nalways\r\n", "GET", "other")
	c.ask("-"+Busy+"\r\n", "GET", "k")
	c.ask("-"+Busy+"\r\n", "Get", "k")
	c.ask("$6\r\nalways\r\n", "GET", "k")
	n.On(Has("k"), Int(7))
	c.ask(":7\r\n", "GET", "k")
	if always.Hits() != 2 || twice.Hits() != 2 {
		t.Errorf("hits %d and %d, want 2 and 2", always.Hits(), twice.Hits())
	}
	always.Remove()
	c.ask("-ERR unknown command 'GET', the fake node has no rule for it\r\n", "GET", "x")
}

func TestNode_AnswerHeld_HoldsThoseBehindIt(t *testing.T) {
	t.Parallel()
	n := New(t)
	first, second := NewGate(), NewGate()
	n.On(Is("ECHO", "1"), Hold(first, Default()))
	n.On(Is("ECHO", "2"), Hold(second, Default()))
	c := dial(t, n)
	for i := range 4 {
		c.send("ECHO", fmt.Sprint(i))
	}
	n.WaitFor(4, Is("ECHO"))
	c.want("$1\r\n0\r\n")
	second.Step() // the second waits behind the first, its step is kept
	first.Open()
	for i := 1; i < 4; i++ {
		c.want(fmt.Sprintf("$1\r\n%d\r\n", i))
	}
	// Another connection never waited.
	dial(t, n).ask("+PONG\r\n", "PING")
}

func TestGate_Step_LetsOneAnswerPass(t *testing.T) {
	t.Parallel()
	n := New(t)
	g := NewGate()
	n.On(Is("ECHO"), Hold(g, Default()))
	c := dial(t, n)
	for i := range 3 {
		c.send("ECHO", fmt.Sprint(i))
	}
	for i := range 3 {
		g.Step()
		c.want(fmt.Sprintf("$1\r\n%d\r\n", i))
	}
}

func TestNode_EndRules_EndTheConnection(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		action Action
		first  string
		end    error
	}{
		"close before":    {Close(), "", io.EOF},
		"close after":     {Seq(Default(), Close()), "+PONG\r\n", io.EOF},
		"reset before":    {Reset(), "", syscall.ECONNRESET},
		"reset after":     {Seq(Default(), Reset()), "+PONG\r\n", syscall.ECONNRESET},
		"half then reset": {HalfThenReset("$10\r\n0123456789\r\n"), "", syscall.ECONNRESET},
		"half then close": {Seq(Raw("$10\r\n01"), Close()), "", io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := New(t)
			n.On(Is("PING"), c.action)
			cl := dial(t, n)
			cl.send("PING")
			if c.first != "" {
				cl.want(c.first)
			}
			cl.wantEnd(c.end)
			n.WaitConns(0)
		})
	}
}

func TestNode_HalfFrame_ArrivesBeforeTheReset(t *testing.T) {
	t.Parallel()
	n := New(t)
	n.On(Is("PING"), HalfThenReset("$10\r\n012345"))
	c := dial(t, n)
	c.send("PING")
	got, err := io.ReadAll(c.Conn)
	if string(got) != "$10\r\n" || !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("%q, %v", got, err)
	}
}

func TestNode_WrongAnswers_AreSent(t *testing.T) {
	t.Parallel()
	n := New(t)
	n.OnNext(1, Is("PING"), Twice(Default()))
	n.OnNext(1, Is("ECHO"), Drop())
	n.OnNext(1, Is("GET"), Drip("$10\r\n0123456789\r\n"))
	n.OnNext(1, Is("SET"), Raw("HTTP/1.1 400 Bad Request\r\n\r\n"))
	c := dial(t, n)
	c.ask("+PONG\r\n", "PING")
	c.want("+PONG\r\n")
	c.send("ECHO", "lost")
	c.ask("$4\r\nkept\r\n", "ECHO", "kept")
	c.ask("$10\r\n0123456789\r\n", "GET", "x")
	c.send("SET")
	b := make([]byte, 4)
	if _, err := io.ReadFull(c.Conn, b); err != nil || string(b) != "HTTP" {
		t.Fatalf("%q, %v", b, err)
	}
}

func TestNode_ConnectRule_AcceptsOrRefuses(t *testing.T) {
	t.Parallel()
	n := New(t)
	n.OnNext(1, OnConn(1, Connect), Close())
	n.OnNext(1, OnConn(2, Connect), Raw("-ERR max number of clients reached\r\n"))
	dial(t, n).wantEnd(io.EOF)
	c := dial(t, n)
	c.want("-ERR max number of clients reached\r\n")
	c.ask("+PONG\r\n", "PING")
	if got := n.Commands(Any); len(got) != 1 || got[0].Conn != 2 {
		t.Errorf("recorded %v", got)
	}
}

func TestNode_StopReading_FillsTheClientsBuffers(t *testing.T) {
	t.Parallel()
	n := New(t, ReadBuffer(64<<10))
	g := NewGate()
	n.On(Is("PING"), StopReading(g, Default()))
	c := dial(t, n)
	c.ask("+PONG\r\n", "PING")

	// Far more than all buffers hold: the write cannot end while nobody reads. The
	// small command first would be seen at once.
	const commands = 200
	b := []byte("*2\r\n$4\r\nECHO\r\n$1\r\nx\r\n")
	for range commands {
		b = redcon.AppendArray(b, 2)
		b = redcon.AppendBulkString(b, "GET")
		b = redcon.AppendBulkString(b, strings.Repeat("x", 64<<10))
	}
	written := make(chan error, 1)
	go func() {
		_, err := c.Write(b)
		written <- err
	}()
	n.On(Is("GET"), Int(1))
	select {
	case err := <-written:
		t.Fatalf("12 MB went into a connection that nobody reads (%v)", err)
	case <-time.After(50 * time.Millisecond):
	}
	if got := n.Commands(Any); len(got) != 1 {
		t.Fatalf("%d commands were read, want the first only", len(got))
	}
	g.Open()
	c.want("$1\r\nx\r\n")
	for range commands {
		c.want(":1\r\n")
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
}

func TestNode_Down_RefusesUntilUp(t *testing.T) {
	overBoth(t, func(t *testing.T, opts ...Option) {
		n := New(t, opts...)
		c := dial(t, n)
		c.ask(":1\r\n", "EVAL", "return 1", "0")
		addr := n.Addr()
		for range 3 {
			n.Down()
			n.WaitConns(0)
			if nc, err := net.Dial(n.Network(), n.Addr()); err == nil {
				nc.Close()
				t.Fatal("connected to a node that is down")
			}
			n.Up()
			if n.Addr() != addr {
				t.Fatalf("moved from %s to %s", addr, n.Addr())
			}
			dial(t, n).ask("*1\r\n:0\r\n", "SCRIPT", "EXISTS", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db")
		}
	})
}

func TestGate_TestEnds_ReleasesAnswers(t *testing.T) {
	t.Parallel()
	// goleak sees the goroutines if the node does not end them.
	t.Run("inner", func(t *testing.T) {
		n := New(t)
		n.On(Is("PING"), Hold(NewGate(), Default()))
		n.On(Is("ECHO"), StopReading(NewGate(), Default()))
		a, b := dial(t, n), dial(t, n)
		a.send("PING")
		b.send("ECHO", "x")
		n.WaitFor(2, Any)
	})
}
