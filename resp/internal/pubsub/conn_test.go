package pubsub

import (
	"errors"
	"slices"
	"testing"
	"time"

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

func TestSubConn_PartialWrite_ContinuesThere(t *testing.T) {
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

func TestSubConn_RepliesSplitAnywhere_AreRead(t *testing.T) {
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

func TestSubConn_WriteFailsOrGarbage_Closes(t *testing.T) {
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

func TestSubConn_FlushAfterTheEnd_WritesNothing(t *testing.T) {
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

// pinged flushes, and reports whether that writes a PING; the server answers what it
// has been sent.
func (m *subModel) pinged() bool {
	m.t.Helper()
	m.flush()
	found := false
	for rest := m.unread; len(rest) > 0; {
		words, n := decodeWords(m.t, rest)
		found = found || words[0] == "PING"
		rest = rest[n:]
	}
	m.drain()
	return found
}

func TestEndpoint_Silent_IsPinged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		waiting bool
		after   time.Duration
	}{
		{"soon, if somebody waits on it", true, modelTimeout / 2},
		{"seldom, if nobody does", false, pingAfter},
	} {
		m := newSubModel(t)
		m.connect()
		p := newProbe(m, "a")
		if c.waiting {
			p.subscribe()
			m.drain()
		}
		for range 3 {
			lastRead := m.clock.Now()
			m.clock.Advance(c.after - 1)
			if late := m.ask(lastRead); late || m.pinged() {
				t.Fatalf("%s: too early; late: %v", c.name, late)
			}
			m.clock.Advance(1)
			if late := m.ask(lastRead); late || !m.pinged() {
				t.Fatalf("%s: no PING; late: %v", c.name, late)
			}
		}
	}
}

// A patient CommandTimeout, for a server that is far away, may be longer than ten seconds.
// The ping comes after ten seconds anyway.
func TestEndpoint_Idle_IsPingedEveryTenSeconds(t *testing.T) {
	t.Parallel()
	m := newSubModel(t)
	m.connect()
	newProbe(m, "a").subscribe()
	m.drain()
	lastRead := m.clock.Now()
	m.clock.Advance(pingAfter)
	wake, _ := m.subs.tick(m.clock.Now(), lastRead, time.Minute)
	if m.wake(wake); !m.pinged() {
		t.Fatal("no PING")
	}
}

// What is judged is silence, and not the age of a command: messages count
// too, and a server with many channels to confirm takes its time.
func TestEndpoint_MessagesArrive_IsNotLate(t *testing.T) {
	t.Parallel()
	m := newSubModel(t)
	m.connect()
	newProbe(m, "a").subscribe()
	m.flush()
	for range 10 {
		m.clock.Advance(modelTimeout - 1)
		if m.ask(m.clock.Now().Add(-time.Second)) {
			t.Fatal("late, though bytes came a second ago")
		}
	}
	lastRead := m.clock.Now()
	m.clock.Advance(modelTimeout)
	if m.ask(lastRead) {
		t.Fatal("late too early")
	}
	m.clock.Advance(1)
	if !m.ask(lastRead) {
		t.Fatal("the silence is not noticed")
	}
	m.drain()
	if m.ask(lastRead) {
		t.Fatal("late, though everything is answered")
	}
}

// A handler that takes its time keeps what lies behind from being read. That is not
// the server's silence either.
func TestEndpoint_HandlersRun_IsNotLate(t *testing.T) {
	t.Parallel()
	fake := clock.NewFake()
	tr := &meagreTransport{}
	s := newSubs()
	p := &Endpoint{subs: s, clock: fake, timeout: time.Second, down: func(error) {}}
	c := &subConn{endpoint: p, subs: s, conn: s.connected()}
	c.OnOpen(tr)
	slow := requesttest.HandlerFunc(func(request.ChannelEvent) {
		fake.Advance(2 * time.Second)
		p.CheckAge(fake.Now())
	})
	s.subscribe(NewChannel("a", slow))
	s.subscribe(NewChannel("b", slow))
	c.OnWake()
	answers := []byte("*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")
	c.OnBytes(slices.Clone(answers)) // b has no answer yet
	fake.Advance(time.Second)
	if p.CheckAge(fake.Now()); len(tr.closed) > 0 {
		t.Fatalf("closed with %v", tr.closed)
	}
	fake.Advance(1)
	if p.CheckAge(fake.Now()); len(tr.closed) != 1 {
		t.Fatal("the silence is not noticed")
	}
}
