package faultproxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/tidwall/redcon"
)

func TestProxy_Pipelines_PassThrough(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, upstream := range [][2]string{{"tcp", s.Addr()}, {"unix", s.Socket()}} {
		t.Run(upstream[0], func(t *testing.T) {
			t.Parallel()
			p := New(t, upstream[0], upstream[1])
			var clients sync.WaitGroup
			const rounds = 500
			for i := range 8 {
				c := dial(t, p)
				clients.Go(func() {
					var b []byte
					for j := range rounds {
						b = command(b, "ECHO", fmt.Sprint(i, "-", j))
						b = command(b, "EVAL", "return {1, {ARGV[1], false}, 'x'}", "0", strings.Repeat("y", j*7))
					}
					if _, err := c.Write(b); err != nil {
						t.Error(err)
					}
				})
				clients.Go(func() {
					for j := range rounds {
						word, long := fmt.Sprint(i, "-", j), strings.Repeat("y", j*7)
						for _, want := range []string{
							string(redcon.AppendBulkString(nil, word)),
							"*3\r\n:1\r\n*2\r\n" + string(redcon.AppendBulkString(nil, long)) + "$-1\r\n$1\r\nx\r\n",
						} {
							if got, _, err := c.r.Reply(); err != nil || string(got) != want {
								t.Errorf("got %.60q, %v; want %.60q", got, err, want)
								return
							}
						}
					}
				})
			}
			clients.Wait()
			stats := p.Stats()
			if stats.Received["ECHO"] != 8*rounds || stats.Forwarded["EVAL"] != 8*rounds || stats.Open != 8 || stats.Accepted != 8 {
				t.Errorf("%+v", stats)
			}
		})
	}
}

func TestProxy_ClientEnds_ServerEndsToo(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	a, b := dial(t, p), dial(t, p)
	a.ask("+OK\r\n", "CLIENT", "SETNAME", "a")
	b.ask("+OK\r\n", "CLIENT", "SETNAME", "b")
	a.Close()
	p.WaitConns(1, All)
	waitUntil(t, func() bool { return !strings.Contains(fmt.Sprint(s.Do("CLIENT", "LIST")), "name=a ") }) // the server sees the end as well
	s.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	b.wantEnd(io.EOF)
	p.WaitConns(0, All)
}

func TestProxy_HalfClose_CommandsBeforeAreAnswered(t *testing.T) {
	t.Parallel()
	_, p := start(t)
	c := dial(t, p)
	p.Delay(All, 5*time.Millisecond, 5*time.Millisecond)
	c.send("ECHO", "last")
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	c.want("$4\r\nlast\r\n")
	c.wantEnd(io.EOF)
}

func TestProxy_Down_CutsAndRefusesUntilUp(t *testing.T) {
	t.Parallel()
	_, p := start(t)
	addr := p.Addr()
	for range 3 {
		c := dial(t, p)
		c.ask("+PONG\r\n", "PING")
		p.Down()
		c.wantEnd(syscall.ECONNRESET)
		if nc, err := net.Dial("tcp", addr); err == nil {
			nc.Close()
			t.Fatal("connected to a proxy that is down")
		}
		p.Up()
	}
	dial(t, p).ask("+PONG\r\n", "PING")
}

func TestProxy_ServerDown_LooksLikeAReset(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	c := dial(t, p)
	c.ask("+PONG\r\n", "PING")
	s.Kill()
	if _, _, err := c.r.Reply(); err == nil {
		t.Error("the end of the server did not reach the client")
	}
	// The reset of a fresh connection may come while it is being dialled.
	if nc, err := net.Dial("tcp", p.Addr()); err == nil {
		_, err = nc.Read(make([]byte, 1))
		nc.Close()
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("server down: %v", err)
		}
	}
	s.Restart()
	dial(t, p).ask("+PONG\r\n", "PING")
}

func TestProxy_TestEnds_FaultsEnd(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	// goleak sees the goroutines if the proxy does not end them.
	t.Run("inner", func(t *testing.T) {
		p := New(t, "tcp", s.Addr())
		a, b, c := dial(t, p), dial(t, p), dial(t, p)
		for i, cl := range []*client{a, b, c} {
			cl.ask("+OK\r\n", "CLIENT", "SETNAME", fmt.Sprint(i))
		}
		p.Pause(Named("0"))
		p.Blackhole(Named("1"))
		p.Delay(Named("2"), time.Hour, time.Hour)
		watch := p.Watch(Is("ECHO"))
		a.send("ECHO", "x")
		b.send("ECHO", "x")
		c.send("ECHO", "x")
		watch.Wait(3)
	})
}
