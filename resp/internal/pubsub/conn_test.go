package pubsub

import (
	"errors"
	"slices"
	"testing"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
	"github.com/pawl-lock/pawl/resp/internal/socket"
	"github.com/pawl-lock/pawl/resp/wire"
)

// meagreTransport takes as many bytes per write as the test says.
type meagreTransport struct {
	takes []int // per write; afterwards everything
	fails error // if set, what a write after the script returns

	written []byte
	wakes   int
	closed  []error
}

func (s *meagreTransport) Write(b []byte) (int, error) {
	n := len(b)
	switch {
	case len(s.takes) > 0:
		n = min(n, s.takes[0])
		s.takes = s.takes[1:]
	case s.fails != nil:
		return 0, s.fails
	}
	s.written = append(s.written, b[:n]...)
	return n, nil
}

func (s *meagreTransport) TryWrite([]byte) (int, error) { return 0, nil }
func (s *meagreTransport) Sent() uint64                 { return uint64(len(s.written)) }
func (s *meagreTransport) Unread() bool                 { return false }
func (s *meagreTransport) Wake()                        { s.wakes++ }
func (s *meagreTransport) Close(err error)              { s.closed = append(s.closed, err) }

// newSubConn returns a connection of s over t that is up.
func newSubConn(s *subs, t socket.Transport, down func(error)) *subConn {
	p := &Endpoint{subs: s, clock: clock.NewFake(), down: down}
	c := &subConn{endpoint: p, subs: s, conn: s.connected()}
	c.OnOpen(t)
	return c
}

func TestStuckWriteGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	var all requesttest.EventCounter
	s := newSubs()
	tr := &meagreTransport{takes: []int{10, 0, 7}}
	c := newSubConn(s, tr, nil)
	s.subscribe(NewChannel("some-name", &all))
	c.OnWake()
	if string(tr.written) != "*2\r\n$9\r\nSU" {
		t.Fatalf("written %q", tr.written)
	}
	// No answer is due, so only the stuck bytes can be why these wake the writer.
	for range 3 {
		before := tr.wakes
		c.OnBytes(nil)
		if tr.wakes == before {
			t.Fatal("bytes arrived, and the stuck write is not tried again")
		}
		c.OnWake()
	}
	if want := string(wire.AppendCommand(nil, "SUBSCRIBE", "some-name")); string(tr.written) != want {
		t.Fatalf("written %q, want %q", tr.written, want)
	}
	before := tr.wakes
	if c.OnBytes(nil); tr.wakes != before {
		t.Fatal("everything is written, and the writer is still woken")
	}
}

func TestRepliesMayArriveCutAnywhere(t *testing.T) {
	t.Parallel()
	answer := "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n" + string(wire.AppendCommand(nil, "message", "a", "hi"))
	for size := 1; size <= len(answer); size++ {
		rec := requesttest.NewRecorder()
		s := newSubs()
		tr := &meagreTransport{}
		c := newSubConn(s, tr, nil)
		s.subscribe(NewChannel("a", rec))
		c.OnWake()
		for part := range slices.Chunk([]byte(answer), size) {
			c.OnBytes(part)
			clear(part) // borrowed bytes are gone after OnBytes
		}
		rec.Await(t, request.Subscribed)
		if got := rec.Await(t, request.Message); got != "hi" || len(tr.closed) > 0 {
			t.Fatalf("in pieces of %d: message %q, closed %v", size, got, tr.closed)
		}
	}
}

func TestFailedWriteAndGarbageEndTheConnection(t *testing.T) {
	t.Parallel()
	var all requesttest.EventCounter
	broken := errors.New("broken pipe")
	s := newSubs()
	tr := &meagreTransport{fails: broken}
	c := newSubConn(s, tr, nil)
	s.subscribe(NewChannel("a", &all))
	c.OnWake()
	if len(tr.closed) != 1 || tr.closed[0] != broken {
		t.Fatalf("closed with %v", tr.closed)
	}

	tr = &meagreTransport{}
	c = newSubConn(newSubs(), tr, nil)
	c.OnBytes([]byte("?\r\n"))
	if len(tr.closed) != 1 || !errors.Is(tr.closed[0], wire.ErrProtocol) {
		t.Fatalf("closed with %v", tr.closed)
	}
}

func TestLateFlushOfADeadConnectionWritesNothing(t *testing.T) {
	t.Parallel()
	var all requesttest.EventCounter
	s := newSubs()
	old := &meagreTransport{}
	c := newSubConn(s, old, func(error) {})
	c.OnClose(errors.New("cut"))
	s.subscribe(NewChannel("a", &all))
	fresh := &meagreTransport{}
	d := newSubConn(s, fresh, nil)
	c.OnWake() // a writer that was on its way when its connection died
	d.OnWake()
	if len(old.written) != 0 || len(fresh.written) == 0 {
		t.Fatalf("written on the dead connection: %q, on the live one: %q", old.written, fresh.written)
	}
}
