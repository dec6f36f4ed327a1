package pubsub

import (
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
)

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

func TestPubSubConnectionThatIsSilentIsPinged(t *testing.T) {
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
func TestPubSubConnectionIsPingedEveryTenSecondsAtLeast(t *testing.T) {
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
func TestPubSubConnectionThatBringsMessagesIsNotLate(t *testing.T) {
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
func TestPubSubConnectionIsNotJudgedWhileItsHandlersRun(t *testing.T) {
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
