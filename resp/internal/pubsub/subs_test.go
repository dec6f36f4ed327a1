package pubsub

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/internal/sockettest"
	"github.com/pawl-lock/pawl/resp/wire"
)

func TestSubs_AnyInterleaving_MatchesTheModel(t *testing.T) {
	t.Parallel()
	r := sockettest.Rand(t)
	steps := 200_000
	if testing.Short() {
		steps = 20_000
	}
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
			// What the promise is about: a live channel misses nothing.
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

func TestSubs_UnsubscribedBeforeTheWrite_SendsNothing(t *testing.T) {
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

func TestSubs_SubscribedAgain_OnlyTheLatestConfirms(t *testing.T) {
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

func TestSubs_SecondChannelOfAName_IsConfirmedAndKeepsItSubscribed(t *testing.T) {
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

func TestSubs_OneChannelForbidden_FailsAlone(t *testing.T) {
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

func TestSubs_ManyChannels_GoOutInBoundedPortions(t *testing.T) {
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

func TestSubs_UnexpectedReplies_CloseTheConnection(t *testing.T) {
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
		v, n, err := wire.Decode([]byte(reply))
		if n != len(reply) || err != nil {
			t.Fatalf("%q: %v", reply, err)
		}
		if err := m.subs.reply(&m.reader, m.conn, v); err == nil {
			t.Errorf("%q was accepted", reply)
		}
	}
}

// The SUBSCRIBE was written for a Channel that is given up; another of the name comes before it is answered. A
// message may lie between the two, so that answer does not confirm the new one. It has the server asked
// once more.
func TestSubs_LaterChannel_NeedsALaterCommand(t *testing.T) {
	t.Parallel()
	m := newSubModel(t)
	m.connect()
	a, b := newProbe(m, "x"), newProbe(m, "x")
	a.subscribe()
	m.flush()
	m.serve()
	a.unsubscribe()
	b.subscribe()
	m.flush()
	if !m.deliver() || b.live {
		t.Error("confirmed by what was written before it came")
	}
	m.drain()
	if !b.live {
		t.Error("not confirmed")
	}
}
