package faultproxy

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/redistest"
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

func dial(t testing.TB, p *Proxy) *client {
	t.Helper()
	nc, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	c := &client{t, nc, respio.NewReader(nc)}
	c.limit(20 * time.Second)
	return c
}

func (c *client) limit(d time.Duration) {
	if err := c.SetDeadline(time.Now().Add(d)); err != nil {
		c.t.Fatal(err)
	}
}

func command(dst []byte, words ...string) []byte {
	dst = redcon.AppendArray(dst, len(words))
	for _, w := range words {
		dst = redcon.AppendBulkString(dst, w)
	}
	return dst
}

func (c *client) send(words ...string) { c.t.Helper(); c.write(command(nil, words...)) }

func (c *client) write(b []byte) {
	c.t.Helper()
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

// wantSilence checks that nothing arrives for a moment, not even an end. A proxy
// that leaks a byte late passes; one that leaks at once is caught.
func (c *client) wantSilence() {
	c.t.Helper()
	c.limit(30 * time.Millisecond)
	c.wantEnd(os.ErrDeadlineExceeded)
	c.limit(20 * time.Second)
}

func start(t *testing.T) (*redistest.Server, *Proxy) {
	t.Helper()
	s := redistest.Start(t)
	return s, New(t, "unix", s.Socket())
}

// get asks the server itself, past the proxy.
func get(s *redistest.Server, key string) string { return fmt.Sprint(s.Do("GET", key)) }

// waitUntil polls the server for what it does on its own time.
func waitUntil(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("still not so after 20 s")
		}
	}
}
