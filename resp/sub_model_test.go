package resp

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// subModel plays the writer, the reader and the server around a subs, in one
// goroutine and in any order that the real ones could take.
type subModel struct {
	t     *testing.T
	subs  *subs
	clock *clock.Fake

	conn    uint32
	up      bool
	owed    bool // a wake has not been followed by a flush yet
	flusher flusher
	reader  listener

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
	m.conn, m.up, m.owed = m.subs.connected(), true, true
}

func (m *subModel) disconnect() {
	if !m.up {
		return
	}
	m.up, m.owed, m.unread, m.replies = false, false, nil, nil
	clear(m.set)
	m.subs.disconnected()
}

func (m *subModel) subscribe(ch *Channel)   { m.wake(m.subs.subscribe(ch)) }
func (m *subModel) unsubscribe(ch *Channel) { m.wake(m.subs.unsubscribe(ch)) }
func (m *subModel) wake(w bool)             { m.owed = m.owed || w && m.up }

func (m *subModel) flush() {
	if m.owed {
		m.owed = false
		m.unread = m.subs.flush(&m.flusher, m.conn, m.unread, m.clock.Now())
	}
}

func (m *subModel) tick() {
	wake, _ := m.subs.tick(m.clock.Now(), m.clock.Now().Add(-time.Second), 0)
	m.wake(wake)
}

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
	m.replies = AppendArrayHeader(m.replies, 3)
	m.replies = AppendBulk(m.replies, kind)
	m.replies = AppendBulk(m.replies, name)
	m.replies = append(m.replies, fmt.Sprintf(":%d\r\n", len(m.set))...)
}

// publish has the server send a message, if anybody is subscribed.
func (m *subModel) publish(name string) {
	if m.set[name] {
		m.replies = AppendCommand(m.replies, "message", name, "hi")
	}
}

// deliver lets the client read one reply. It reports whether there was one.
func (m *subModel) deliver() bool {
	if len(m.replies) == 0 {
		return false
	}
	v, n, err := Decode(m.replies)
	if n == 0 || err != nil {
		m.t.Fatalf("the model's replies: %v", err)
	}
	err = m.subs.reply(&m.reader, m.conn, v)
	m.replies = m.replies[n:]
	if err != nil {
		m.t.Fatalf("reply: %v", err)
	}
	m.wake(m.subs.flushable()) // as at the end of onBytes
	return true
}

// drain lets everything happen that is under way.
func (m *subModel) drain() {
	for range 1_000_000 {
		if m.owed {
			m.flush()
			continue
		}
		if !m.serve() && !m.deliver() {
			m.tick()
			if !m.owed {
				return
			}
		}
	}
	m.t.Fatal("the state machine does not come to rest")
}

// about reports whether a command about name has no answer yet.
func (m *subModel) about(name string) bool {
	word := string(AppendBulk(nil, name))
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
	v, n, err := Decode(b)
	if n == 0 || err != nil {
		t.Fatalf("Decode(%q): %v", b, err)
	}
	if v.Kind == KindError {
		return []string{string(v.Bytes)}, n
	}
	v.Each(func(_ int, e Value) bool { words = append(words, string(e.Bytes)); return true })
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

func (p *probe) ChannelEvent(ev ChannelEvent, payload []byte, err error) {
	t, name := p.model.t, p.ch.Name()
	if !p.desired {
		t.Fatalf("%s: event %d although unsubscribed", name, ev)
	}
	switch ev {
	case Subscribed:
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
	case Message:
		p.messages++
		if !p.live || string(payload) != "hi" {
			t.Fatalf("%s: Message %q, live %v", name, payload, p.live)
		}
	case Disconnected:
		if !p.live || p.model.up {
			t.Fatalf("%s: Disconnected, live %v, up %v", name, p.live, p.model.up)
		}
		p.live = false
	case Refused:
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

func TestSubscriptionsSurviveAnyInterleaving(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	steps := 200_000
	if testing.Short() {
		steps = 20_000
	}
	r := rand.New(rand.NewPCG(seed, 0))
	m := newSubModel(t)
	var probes []*probe
	for i := range 24 { // 12 names, two Channels each; two names are forbidden
		probes = append(probes, newProbe(m, fmt.Sprintf("name-%d", i/2)))
	}
	m.denied["name-3"], m.denied["name-8"] = true, true

	for step := range steps {
		p := probes[r.IntN(len(probes))]
		switch k := r.IntN(1000); {
		case k < 150:
			p.subscribe()
		case k < 300:
			p.unsubscribe()
		case k < 450:
			m.flush()
		case k < 620:
			m.serve()
		case k < 800:
			m.deliver()
		case k < 950:
			// What the promise is about: whoever is live misses nothing.
			if p.live && !m.set[p.ch.Name()] {
				t.Fatalf("step %d: %s is live, but a message now would be lost", step, p.ch.Name())
			}
			m.publish(p.ch.Name())
		case k < 970:
			m.tick()
		case k < 985:
			m.busy += r.IntN(3)
		case k < 990:
			m.disconnect()
		case k < 998:
			m.connect()
		default:
			m.connect()
			m.busy = 0
			m.drain()
			for _, p := range probes {
				if p.desired != p.live {
					t.Fatalf("step %d: %s at rest: desired %v, live %v", step, p.ch.Name(), p.desired, p.live)
				}
			}
		}
		m.check()
	}

	m.connect()
	m.busy = 0
	confirmed, messages, refused := 0, 0, 0
	for _, p := range probes {
		p.unsubscribe()
		confirmed += p.subscribed
		messages += p.messages
		if p.refused {
			refused++
		}
	}
	m.drain()
	if n := len(m.subs.mu.topics); n != 0 || len(m.set) != 0 {
		t.Fatalf("nobody wants anything, but the client keeps %d topics and the server %d", n, len(m.set))
	}
	if confirmed < steps/200 || messages < steps/200 || refused != 4 {
		t.Fatalf("the test tests too little: %d confirmations, %d messages, %d refused", confirmed, messages, refused)
	}
}

func TestChangeOfMindBeforeTheWriteCostsNothing(t *testing.T) {
	t.Parallel()
	m := newSubModel(t)
	m.connect()
	p := newProbe(m, "a")
	p.subscribe()
	p.unsubscribe()
	m.flush()
	if len(m.unread) != 0 || len(m.subs.mu.topics) != 0 {
		t.Fatalf("sent %q, keeps %d topics", m.unread, len(m.subs.mu.topics))
	}
}

func TestOnlyTheLatestSubscribeConfirms(t *testing.T) {
	t.Parallel()
	m := newSubModel(t)
	m.connect()
	p := newProbe(m, "a")
	p.subscribe()
	m.flush()
	p.unsubscribe()
	m.flush()
	p.subscribe()
	m.flush()
	m.serve()
	m.deliver() // the first SUBSCRIBE's
	if p.subscribed != 0 {
		t.Fatal("the first confirmation was taken for the third call")
	}
	m.drain()
	if p.subscribed != 1 || !m.set["a"] {
		t.Fatalf("%d confirmations, server subscribed: %v", p.subscribed, m.set["a"])
	}
}

func TestSecondChannelOfANameIsConfirmedAndKeepsItSubscribed(t *testing.T) {
	t.Parallel()
	m := newSubModel(t)
	m.connect()
	p, q := newProbe(m, "a"), newProbe(m, "a")
	p.subscribe()
	m.drain()
	q.subscribe()
	m.drain()
	p.unsubscribe()
	m.drain()
	m.publish("a")
	m.drain()
	if p.subscribed != 1 || q.subscribed != 1 || p.messages != 0 || q.messages != 1 {
		t.Fatalf("first %+v, second %+v", p, q)
	}
}

func TestRefusedChannelFailsAlone(t *testing.T) {
	t.Parallel()
	m := newSubModel(t)
	m.denied["n-77"] = true
	m.connect()
	var probes []*probe
	for i := range 300 {
		p := newProbe(m, fmt.Sprintf("n-%d", i))
		p.subscribe()
		probes = append(probes, p)
	}
	m.drain()
	for i, p := range probes {
		if i == 77 && !p.refused || i != 77 && !p.live {
			t.Fatalf("channel %d: refused %v, live %v", i, p.refused, p.live)
		}
	}
	// The refusal is not for ever: somebody may have mended the ACL.
	delete(m.denied, "n-77")
	probes[77].subscribe()
	m.drain()
	if !probes[77].live {
		t.Fatal("a channel once refused cannot be subscribed any more")
	}
}

func TestManyChannelsGoOutInBoundedPortions(t *testing.T) {
	t.Parallel()
	const n = 3*maxUnanswered + 17
	m := newSubModel(t)
	m.connect()
	for i := range n {
		newProbe(m, fmt.Sprintf("n-%d", i)).subscribe()
	}
	m.flush()
	commands, names := 0, 0
	for rest := m.unread; len(rest) > 0; commands++ {
		words, k := decodeWords(t, rest)
		names += len(words) - 1
		rest = rest[k:]
	}
	if names != maxUnanswered || commands != maxUnanswered/maxTopics {
		t.Fatalf("the first portion has %d names in %d commands", names, commands)
	}
}

func TestSurprisesEndTheConnection(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{
		":1\r\n",
		"$2\r\nhi\r\n",
		"*0\r\n",
		"*-1\r\n",
		"*1\r\n:5\r\n",
		"+PONG\r\n",
		"-ERR what\r\n",
		"*2\r\n$4\r\npong\r\n$0\r\n\r\n",
		"*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n",
		"*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n",
		"*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n",
		"*2\r\n$9\r\nsubscribe\r\n$1\r\na\r\n",
		"*4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$1\r\na\r\n$1\r\nb\r\n",
	} {
		m := newSubModel(t)
		m.connect()
		p := newProbe(m, "a")
		if !strings.HasPrefix(reply, "-") { // an error would be the answer to it
			p.subscribe()
			m.flush()
		}
		v, n, err := Decode([]byte(reply))
		if n != len(reply) || err != nil {
			t.Fatalf("%q: %v", reply, err)
		}
		if err := m.subs.reply(&m.reader, m.conn, v); err == nil {
			t.Errorf("%q was accepted", reply)
		}
	}
}

func TestSilenceIsAnsweredByAPingAndItsAgeIsSeen(t *testing.T) {
	t.Parallel()
	m := newSubModel(t)
	m.connect()
	start := m.clock.Now()
	m.clock.Advance(pingAfter - 1)
	if wake, late := m.subs.tick(m.clock.Now(), start, m.clock.Now().Add(-3*time.Second)); wake || late {
		t.Fatalf("too early: wake %v, late %v", wake, late)
	}
	m.flush()
	m.clock.Advance(1)
	wake, _ := m.subs.tick(m.clock.Now(), start, m.clock.Now().Add(-3*time.Second))
	m.wake(wake)
	m.flush()
	if words, _ := decodeWords(t, m.unread); words[0] != "PING" {
		t.Fatalf("sent %q", m.unread)
	}
	m.clock.Advance(3*time.Second + 1)
	if _, late := m.subs.tick(m.clock.Now(), start, m.clock.Now().Add(-3*time.Second)); !late {
		t.Fatal("an unanswered PING is not noticed")
	}
	m.drain()
	if _, late := m.subs.tick(m.clock.Now(), m.clock.Now(), m.clock.Now()); late {
		t.Fatal("an answered PING counts as unanswered")
	}
}

func TestMessageCostsNoAllocation(t *testing.T) {
	m := newSubModel(t)
	m.connect()
	p := newProbe(m, "redisson_lock__channel:{some:lock:name:of:usual:length}")
	p.subscribe()
	m.drain()
	m.publish(p.ch.Name())
	v, _, err := Decode(m.replies)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { m.subs.reply(&m.reader, m.conn, v) }); n != 0 {
		t.Fatalf("%v allocations per message", n)
	}
}
