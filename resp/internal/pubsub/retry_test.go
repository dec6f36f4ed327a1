package pubsub

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/sockettest"
)

// asked counts the names of the SUBSCRIBEs that are written until so much time has
// passed, with a server that answers each with an error.
func (m *subModel) asked(d time.Duration, refusal string) (names, commands int) {
	for end := m.clock.Now().Add(d); m.clock.Now().Before(end); m.tick() {
		m.flush()
		for len(m.unread) > 0 {
			words, n := decodeWords(m.t, m.unread)
			m.unread = m.unread[n:]
			if words[0] == "PING" {
				m.replies = append(m.replies, "+PONG\r\n"...)
				continue
			}
			names += len(words) - 1
			commands++
			m.replies = append(m.replies, refusal...)
		}
		for m.deliver() {
		}
	}
	return names, commands
}

const unknownCommand = "-ERR unknown command 'SUBSCRIBE'\r\n"

// A server that goes on refusing is asked ever more seldom, for all its channels in few
// commands.
func TestRetryQueue_RefusedAgainAndAgain_BacksOff(t *testing.T) {
	t.Parallel()
	m := newSubModel(t)
	m.subs.mu.retries.rand = sockettest.Rand(t)
	m.connect()
	const channels = 1000
	for i := range channels {
		newProbe(m, fmt.Sprint("name-", i)).subscribe()
	}
	// At once, by the next tick, and within 200, 400, 800, 1600 and 3200 ms: 5 to 7 times.
	if names, commands := m.asked(5*time.Second, unknownCommand); names < 5*channels || names > 8*channels || commands > 8*(channels/maxTopics+1) {
		t.Errorf("%d names in %d commands in the first 5 s", names, commands)
	}
	m.asked(10*time.Second, unknownCommand)
	if names, _ := m.asked(60*time.Second, unknownCommand); names < 12*channels || names > 25*channels {
		t.Errorf("%d names in a minute, want each every 2.5 to 5 s", names)
	}
}

// One refusal proves little: what passes at once costs no more than before.
func TestRetryQueue_RefusedOnce_IsRetriedAtTheNextTick(t *testing.T) {
	t.Parallel()
	m := newSubModel(t)
	m.connect()
	p := newProbe(m, "a")
	p.subscribe()
	for range 2 * maxRefusals {
		m.busy = 1
		for range 3 { // refused, asked again by the tick, confirmed
			m.flush()
			m.serve()
			m.deliver()
			m.tick()
		}
		if !p.live {
			t.Fatal("not confirmed two ticks after the refusal")
		}
		m.disconnect() // a new connection begins anew
		m.connect()
	}
	q := newProbe(m, "a") // for whom the server is asked once more
	for range 2 * maxRefusals {
		m.busy = 1
		q.subscribe()
		for range 3 {
			m.flush()
			m.serve()
			m.deliver()
			m.tick()
		}
		if !q.live {
			t.Fatal("refusals from before a confirmation count")
		}
		q.unsubscribe()
	}
}

// What is not wanted any more is not asked for when its turn comes, and forgotten; what
// is wanted anew does not wait for a turn.
func TestRetryQueue_Unsubscribed_IsForgotten(t *testing.T) {
	t.Parallel()
	m := newSubModel(t)
	m.connect()
	p := newProbe(m, "a")
	p.subscribe()
	m.asked(5*time.Second, unknownCommand)
	p.unsubscribe()
	m.flush()
	if n := len(m.subs.mu.topics); n != 0 {
		t.Errorf("%d topics are kept", n)
	}
	if names, _ := m.asked(20*time.Second, unknownCommand); names != 0 || m.subs.mu.retries.len() != 0 {
		t.Errorf("asked for %d times, %d held", names, m.subs.mu.retries.len())
	}
	p.subscribe()
	m.flush()
	if !strings.Contains(string(m.unread), "SUBSCRIBE") {
		t.Error("wanted again, and not asked for at once")
	}
}
