package pubsub

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/wire"
)

// subModel plays the writer, the reader and the server around a subs, in one
// goroutine and in any order that the real ones could take.
type subModel struct {
	t     *testing.T
	subs  *subs
	clock *clock.Fake

	conn        uint32
	up          bool
	wakePending bool // a wake has not been followed by a flush yet
	flusher     flusher
	reader      listener

	unread  []byte          // written, not read by the server
	replies []byte          // sent by the server, not read by the client
	set     map[string]bool // what the server has subscribed
	denied  map[string]bool // by the ACL
	busy    int             // so many commands will be answered BUSY
}

func newSubModel(t *testing.T) *subModel {
	return &subModel{t: t, subs: newSubs(), clock: clock.NewFake(), set: map[string]bool{}, denied: map[string]bool{}}
}

func (m *subModel) connect() {
	if m.up {
		return
	}
	m.conn, m.up, m.wakePending = m.subs.connected(), true, true
}

func (m *subModel) disconnect() {
	if !m.up {
		return
	}
	m.up, m.wakePending, m.unread, m.replies = false, false, nil, nil
	clear(m.set)
	m.subs.disconnected()
}

func (m *subModel) subscribe(ch *Channel)   { m.wake(m.subs.subscribe(ch)) }
func (m *subModel) unsubscribe(ch *Channel) { m.wake(m.subs.unsubscribe(ch)) }
func (m *subModel) wake(w bool)             { m.wakePending = m.wakePending || w && m.up }

func (m *subModel) flush() {
	if m.wakePending {
		m.wakePending = false
		m.unread = m.subs.flush(&m.flusher, m.conn, m.unread, m.clock.Now())
	}
}

func (m *subModel) tick() {
	m.clock.Advance(100 * time.Millisecond)
	m.ask(m.clock.Now())
}

// ask is a tick of a connection that has last brought bytes at lastRead, with a
// CommandTimeout of modelTimeout; it reports whether the server is late.
func (m *subModel) ask(lastRead clock.Instant) (late bool) {
	wake, late := m.subs.tick(m.clock.Now(), lastRead, modelTimeout)
	m.wake(wake)
	return late
}

const modelTimeout = 3 * time.Second

// serve lets the server execute one command. It reports whether there was one.
func (m *subModel) serve() bool {
	if len(m.unread) == 0 {
		return false
	}
	words, n := decodeWords(m.t, m.unread)
	m.unread = m.unread[n:]
	if m.busy > 0 {
		m.busy--
		m.replies = append(m.replies, "-BUSY Redis is busy running a script.\r\n"...)
		return true
	}
	switch words[0] {
	case "SUBSCRIBE":
		for _, name := range words[1:] {
			if m.denied[name] {
				m.replies = append(m.replies, "-NOPERM this user has no permissions to access one of the channels used as arguments\r\n"...)
				return true
			}
		}
		for _, name := range words[1:] {
			m.set[name] = true
			m.push("subscribe", name)
		}
	case "UNSUBSCRIBE":
		for _, name := range words[1:] {
			delete(m.set, name)
			m.push("unsubscribe", name)
		}
	case "PING":
		m.replies = append(m.replies, "*2\r\n$4\r\npong\r\n$0\r\n\r\n"...)
	default:
		m.t.Fatalf("the client sent %q", words)
	}
	return true
}

func (m *subModel) push(kind, name string) {
	m.replies = wire.AppendArrayHeader(m.replies, 3)
	m.replies = wire.AppendBulk(m.replies, kind)
	m.replies = wire.AppendBulk(m.replies, name)
	m.replies = append(m.replies, fmt.Sprintf(":%d\r\n", len(m.set))...)
}

// publish has the server send a message, if anybody is subscribed.
func (m *subModel) publish(name string) {
	if m.set[name] {
		m.replies = wire.AppendCommand(m.replies, "message", name, "hi")
	}
}

// deliver lets the client read one reply. It reports whether there was one.
func (m *subModel) deliver() bool {
	if len(m.replies) == 0 {
		return false
	}
	v, n, err := wire.Decode(m.replies)
	if n == 0 || err != nil {
		m.t.Fatalf("the model's replies: %v", err)
	}
	err = m.subs.reply(&m.reader, m.conn, v)
	m.replies = m.replies[n:]
	if err != nil {
		m.t.Fatalf("reply: %v", err)
	}
	m.wake(m.subs.flushable()) // as at the end of OnBytes
	return true
}

// drain lets everything happen that is under way.
func (m *subModel) drain() {
	for range 1_000_000 {
		if m.wakePending {
			m.flush()
			continue
		}
		if !m.serve() && !m.deliver() {
			m.tick()
			if !m.wakePending && m.subs.mu.retries.len() == 0 {
				return
			}
		}
	}
	m.t.Fatal("the state machine does not come to rest")
}

// about reports whether a command about name has no answer yet.
func (m *subModel) about(name string) bool {
	word := string(wire.AppendBulk(nil, name))
	if strings.Contains(string(m.unread), word) {
		return true
	}
	for rest := m.replies; len(rest) > 0; {
		words, n := decodeWords(m.t, rest)
		if words[0] != "message" && len(words) > 1 && words[1] == name {
			return true
		}
		rest = rest[n:]
	}
	return false
}

// check compares what the subs believes with what is so.
func (m *subModel) check() {
	settled := 0
	m.subs.mu.Lock()
	defer m.subs.mu.Unlock()
	for name, t := range m.subs.mu.topics {
		if t.conn == m.subs.mu.conn && t.settled() && m.up {
			settled++
			if !m.set[name] {
				m.t.Fatalf("%s counts as confirmed and the server does not know it", name)
			}
		}
	}
	if settled != m.subs.mu.confirmed {
		m.t.Fatalf("%d topics are settled, %d counted", settled, m.subs.mu.confirmed)
	}
}

func decodeWords(t *testing.T, b []byte) (words []string, n int) {
	t.Helper()
	v, n, err := wire.Decode(b)
	if n == 0 || err != nil {
		t.Fatalf("Decode(%q): %v", b, err)
	}
	if v.Kind == wire.KindError {
		return []string{string(v.Bytes)}, n
	}
	v.Each(func(_ int, e wire.Value) bool { words = append(words, string(e.Bytes)); return true })
	return words, n
}

// probe is a ChannelHandler that checks the order of its events and what each
// one promises.
type probe struct {
	model   *subModel
	ch      *Channel
	desired bool
	live    bool
	refused bool

	subscribed, messages int
}

func newProbe(m *subModel, name string) *probe {
	p := &probe{model: m}
	p.ch = NewChannel(name, p)
	return p
}

func (p *probe) ChannelEvent(ev request.ChannelEvent, payload []byte, err error) {
	t, name := p.model.t, p.ch.Name()
	if !p.desired {
		t.Fatalf("%s: event %d although unsubscribed", name, ev)
	}
	switch ev {
	case request.Subscribed:
		p.subscribed++
		if p.live {
			t.Fatalf("%s: Subscribed twice", name)
		}
		// The reply being delivered is still in replies: it is the first one.
		_, n := decodeWords(t, p.model.replies)
		rest := p.model.replies
		p.model.replies = rest[n:]
		if !p.model.set[name] || p.model.about(name) {
			t.Fatalf("%s: confirmed by an answer that is not its latest", name)
		}
		p.model.replies = rest
		p.live = true
	case request.Message:
		p.messages++
		if !p.live || string(payload) != "hi" {
			t.Fatalf("%s: Message %q, live %v", name, payload, p.live)
		}
	case request.Disconnected:
		if !p.live || p.model.up {
			t.Fatalf("%s: Disconnected, live %v, up %v", name, p.live, p.model.up)
		}
		p.live = false
	case request.Refused:
		if !p.model.denied[name] || err == nil {
			t.Fatalf("%s: Refused: %v", name, err)
		}
		p.refused, p.desired, p.live = true, false, false
	}
}

func (p *probe) subscribe() {
	p.desired = true
	p.model.subscribe(p.ch)
}

func (p *probe) unsubscribe() {
	p.desired, p.live = false, false
	p.model.unsubscribe(p.ch)
}
