package pubsub

import (
	"sync"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/fifo"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/slot"
	"github.com/pawl-lock/pawl/resp/wire"
)

// pingAfter is the silence after which a connection is pinged. While channels are
// wanted, the pub/sub connection is pinged after half of CommandTimeout if that is less.
const pingAfter = 10 * time.Second

// subs is the pub/sub side of a Client without its socket: what is wanted, what
// was sent to the server, and what it has answered.
//
// Invariants
//
//  1. A topic is in topics as long as a Channel wants it or the connection's
//     server may still know it.
//
//  2. cmds and names are the unanswered commands in the order written: the
//     answers come in exactly that order. Anything else closes the connection. What a server
//     says unasked could be taken for an answer, so what it concerns is fenced (fence.go).
//
//  3. A topic is confirmed by the answer to its latest command only. With
//     Subscribe, Unsubscribe, Subscribe in a row, an UNSUBSCRIBE written in
//     between means that the first answer is no news about now:
//
//     SUBSCRIBE ->  UNSUBSCRIBE ->  SUBSCRIBE ->  <- 1st  (message lost here)  <- 2nd  <- 3rd
//
//     If none was written in between, the server has been subscribed all the
//     time and the first answer is as good as any; but it confirms no Channel
//     that came after its command was written. So what a Channel gets was
//     published after it was subscribed.
//
//  4. A Channel gets Subscribed, Message..., Disconnected, Subscribed, ... in
//     this order: messages go only to Channels that are live.
//
// One topic, seen from the writer (flush) and the reader (reply):
//
//	wanted, sent != subscribe           -> SUBSCRIBE
//	not wanted, sent == subscribe       -> UNSUBSCRIBE
//	not wanted, not sent, flight == 0   -> forgotten
//
// Each change of one side queues the topic in dirty; flush compares. So any
// number of changes between two flushes costs one command or none.
//
// Rejected: counting confirmations by the number that the server sends along.
// It counts all channels of the connection and says nothing of this one.
type subs struct {
	sharded bool   // SSUBSCRIBE and its relatives
	moved   func() // the server ended a subscription, or knows of a better place; may be nil
	wake    func() // has the writer flush; set if there can be one
	mu      struct {
		*sync.Mutex // of all nodes of a Client: a Channel may come from one to another
		topics      map[string]*topic
		conn        uint32 // number of the present or last connection; 0: none yet
		up          bool
		armed       bool               // the writer has been asked to flush and has not begun
		dirty       fifo.Ring[*topic]  // to be compared
		retries     retryQueue         // to be queued again later: the server refused
		cmds        fifo.Ring[command] // unanswered
		names       fifo.Ring[*topic]  // the topics of cmds, one per expected answer

		pingDue bool // the next flush writes a PING

		complained bool              // about this connection's refusals
		complaint  *wire.ServerError // to be reported: channels are refused, and not only for now; or nil

		confirmed int    // topics with sent == subscribe and no command in flight
		messages  uint64 // that arrived, on whatever channel
	}
}

func newSubs() *subs {
	s := new(subs)
	s.mu.Mutex = new(sync.Mutex)
	s.mu.topics = make(map[string]*topic)
	return s
}

// subscribe adds ch. wake: the caller has to make the writer flush.
func (s *subs) subscribe(ch *Channel) (wake bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.subscribeLocked(ch)
}

func (s *subs) subscribeLocked(ch *Channel) (wake bool) {
	if ch.topic != nil {
		return false
	}
	t := s.mu.topics[ch.name]
	if t == nil {
		t = &topic{name: ch.name, subs: s, slot: slot.Of(ch.name)}
		s.mu.topics[ch.name] = t
	}
	ch.topic, ch.live = t, 0
	ch.came = t.wrote
	ch.next, t.first = t.first, ch
	return s.queueLocked(t)
}

// unsubscribe removes ch. wake is as in subscribe.
func (s *subs) unsubscribe(ch *Channel) (wake bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unsubscribeLocked(ch)
}

// unsubscribeLocked is for a Channel that is subscribed here, or nowhere.
func (s *subs) unsubscribeLocked(ch *Channel) (wake bool) {
	t := ch.topic
	if t == nil {
		return false
	}
	for p := &t.first; *p != nil; p = &(*p).next {
		if *p == ch {
			*p = ch.next
			break
		}
	}
	ch.topic, ch.next, ch.live = nil, nil, 0
	if t.first != nil {
		return false
	}
	if !s.mu.up {
		s.forgetLocked(t)
		return false
	}
	return s.queueLocked(t)
}

// queueLocked has flush look at t.
func (s *subs) queueLocked(t *topic) (wake bool) {
	if !s.mu.up {
		return false // connected will queue all
	}
	s.refreshLocked(t)
	if t.queued {
		return false
	}
	t.queued = true
	s.mu.dirty.Push(t)
	return s.armLocked()
}

func (s *subs) armLocked() (wake bool) {
	wake = !s.mu.armed
	s.mu.armed = true
	return wake
}

// refreshLocked voids what t knew of an earlier connection.
func (s *subs) refreshLocked(t *topic) {
	if t.conn != s.mu.conn {
		*t = topic{name: t.name, first: t.first, conn: s.mu.conn, subs: s, slot: t.slot, wrote: t.wrote}
	}
}

// forgetLocked ends t, unless a successor has its place already.
func (s *subs) forgetLocked(t *topic) {
	if s.mu.topics[t.name] == t {
		delete(s.mu.topics, t.name)
	}
}

// evictLocked moves the Channels of the slots that are elsewhere to unserved, and returns
// the handlers of those that were live; nil if there was nothing to move.
func (s *subs) evictLocked(unserved *subs, elsewhere func(slot uint16) bool) []request.ChannelHandler {
	var live []request.ChannelHandler
	found := false
	for _, t := range s.mu.topics {
		if t.first == nil || !elsewhere(t.slot) {
			continue
		}
		found = true
		for ch := t.first; ch != nil; ch = t.first {
			// Also if the connection has just ended: disconnected finds it here no more.
			if ch.live != 0 && ch.live == s.mu.conn {
				live = append(live, ch.handler)
			}
			s.unsubscribeLocked(ch)
			unserved.subscribeLocked(ch)
		}
	}
	if found && live == nil {
		live = []request.ChannelHandler{}
	}
	return live
}

// walk calls f for every topic, mu held, but lets others in now and then: a
// reconnect with 100,000 topics must not stop new subscribers. Topics that
// come meanwhile may be missed.
func (s *subs) walk(f func(t *topic)) {
	const chunk = 256
	n := 0
	s.mu.Lock()
	for _, t := range s.mu.topics {
		f(t)
		if n++; n%chunk == 0 {
			s.mu.Unlock()
			s.mu.Lock()
		}
	}
	s.mu.Unlock() // not deferred: f may have panicked in a handler, mu not held
}

// connected starts a new connection, on which the server knows nothing, and
// returns its number. The caller has the writer flush when it can; until then
// nobody has to.
func (s *subs) connected() (conn uint32) {
	s.mu.Lock()
	s.mu.conn++
	conn = s.mu.conn
	s.mu.up, s.mu.armed, s.mu.pingDue, s.mu.complained = true, true, false, false
	s.mu.Unlock()
	s.walk(func(t *topic) { s.queueLocked(t) })
	return conn
}

// disconnected ends the connection and delivers Disconnected to every Channel that was live. No
// reply of this connection runs beside it or after it.
func (s *subs) disconnected() {
	s.mu.Lock()
	s.mu.up = false
	s.mu.confirmed = 0
	s.mu.dirty, s.mu.cmds, s.mu.names, s.mu.retries = fifo.Ring[*topic]{}, fifo.Ring[command]{}, fifo.Ring[*topic]{}, retryQueue{rand: s.mu.retries.rand}
	conn := s.mu.conn
	s.mu.Unlock()

	var lost lostChannels
	s.walk(func(t *topic) {
		if t.first == nil {
			s.forgetLocked(t)
			return
		}
		for ch := t.first; ch != nil; ch = ch.next {
			if ch.live == conn {
				ch.live = 0
				lost.add(ch)
			}
		}
		if len(lost.channels) >= 256 {
			s.mu.Unlock()
			s.deliverLost(&lost)
			s.mu.Lock()
		}
	})
	s.deliverLost(&lost)
}

// lostChannels are Channels that have lost their connection, with their handlers as
// they were under mu.
type lostChannels struct {
	channels []*Channel
	handlers []request.ChannelHandler
}

func (l *lostChannels) add(ch *Channel) {
	l.channels, l.handlers = append(l.channels, ch), append(l.handlers, ch.handler)
}

// deliverLost delivers Disconnected, and empties the list. A Channel may have moved meanwhile, and
// have got Subscribed from its new node: then it gets that again, since the last event counts.
func (s *subs) deliverLost(l *lostChannels) {
	var live []request.ChannelHandler
	for _, h := range l.handlers {
		h.ChannelEvent(request.Disconnected, nil, nil)
	}
	s.mu.Lock()
	for i, ch := range l.channels {
		if ch.live != 0 {
			live = append(live, l.handlers[i])
		}
	}
	s.mu.Unlock()
	deliver(live, request.Subscribed, nil, nil)
	*l = lostChannels{}
}

// tick queues again what the server refused some time ago, and has the server pinged after a
// silence: one that somebody waits on soon, for a connection whose other end is gone
// without a word must not keep them asleep. lastRead is when the connection last brought
// bytes. late: nothing has come for longer than timeout, though an answer is due.
func (s *subs) tick(now, lastRead clock.Instant, timeout time.Duration) (wake, late bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.up {
		return false, false
	}
	patience := pingAfter
	if len(s.mu.topics) > 0 {
		patience = min(patience, timeout/2)
	}
	if s.mu.cmds.Len() > 0 {
		late = now.Sub(max(lastRead, s.mu.cmds.Front().at)) > timeout
	} else if now.Sub(lastRead) >= patience {
		s.mu.pingDue = true
		wake = s.armLocked()
	}
	s.mu.retries.tick(now, func(t *topic) { wake = s.queueLocked(t) || wake })
	return wake, late
}

// complaint returns what is to be said of this connection, once.
func (s *subs) complaint() (e *wire.ServerError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, s.mu.complaint = s.mu.complaint, nil
	return e
}

// counts are for Stats.
func (s *subs) counts() (desired, confirmed int, messages uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.topics), s.mu.confirmed, s.mu.messages
}

// deliver looks at no Channel: one that was unsubscribed in the meantime may be in
// use again, under another name.
func deliver(calls []request.ChannelHandler, ev request.ChannelEvent, payload []byte, err error) {
	for _, h := range calls {
		h.ChannelEvent(ev, payload, err)
	}
	clear(calls)
}
