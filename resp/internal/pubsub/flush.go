package pubsub

import (
	"fmt"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/wire"
)

// verb is a command of the pub/sub connection.
type verb uint8

const (
	verbNone verb = iota
	verbSubscribe
	verbUnsubscribe
	verbPing
)

func (v verb) String() string {
	return [...]string{"none", "SUBSCRIBE", "UNSUBSCRIBE", "PING"}[v]
}

// word is the command's name.
func (v verb) word(sharded bool) string {
	if sharded && v != verbPing {
		return "S" + v.String()
	}
	return v.String()
}

// command is one that was written; its topics are in subs.mu.names.
type command struct {
	verb  verb
	left  uint16        // answers still to come
	whole uint16        // answers in all
	at    clock.Instant // just before it was given to the transport

	// Of a sharded UNSUBSCRIBE, see fencedLocked.
	ended   bool              // the server has ended the subscription, asked or unasked
	refusal *wire.ServerError // of the UNSUBSCRIBE
}

const (
	// maxTopics is how many topics share a command: enough to spread its cost, few
	// enough to repeat when one of the channels is refused.
	maxTopics = 256
	// maxUnanswered is how many topics may be in flight: enough to keep a distant server
	// busy, few enough that 100,000 topics never become one write of many megabytes.
	maxUnanswered = 4 << 10
)

// flusher is what one connection's writer needs beside subs.
type flusher struct {
	sub, unsub []*topic // scratch
}

// flush appends the commands that make the server know what is wanted, as far
// as maxUnanswered allows. It does nothing for a connection that is not the
// present one.
func (s *subs) flush(f *flusher, conn uint32, dst []byte, now clock.Instant) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.up || s.mu.conn != conn {
		return dst
	}
	for s.mu.dirty.Len() > 0 && s.mu.names.Len()+len(f.sub)+len(f.unsub) < maxUnanswered {
		t := s.mu.dirty.Pop()
		t.queued = false
		switch v := s.dueLocked(t); {
		case v == verbNone:
		case t.alone || s.sharded: // channels of one command must share a slot
			dst = s.appendLocked(dst, v, now, t)
		case v == verbSubscribe:
			if f.sub = append(f.sub, t); len(f.sub) == maxTopics {
				dst = s.appendLocked(dst, v, now, f.sub...)
				f.sub = f.sub[:0]
			}
		default:
			if f.unsub = append(f.unsub, t); len(f.unsub) == maxTopics {
				dst = s.appendLocked(dst, v, now, f.unsub...)
				f.unsub = f.unsub[:0]
			}
		}
	}
	dst = s.appendLocked(dst, verbSubscribe, now, f.sub...)
	dst = s.appendLocked(dst, verbUnsubscribe, now, f.unsub...)
	clear(f.sub[:cap(f.sub)]) // keep no topic alive
	clear(f.unsub[:cap(f.unsub)])
	f.sub, f.unsub = f.sub[:0], f.unsub[:0]
	s.mu.dirty.Shrink()
	s.mu.armed = s.mu.dirty.Len() > 0 // stopped at the limit: the next answers flush
	if s.mu.pingDue {
		s.mu.pingDue = false
		s.mu.cmds.Push(command{verb: verbPing, left: 1, whole: 1, at: now})
		dst = wire.AppendCommand(dst, verbPing.String())
	}
	return dst
}

// flushable reports whether flush would have something to append.
func (s *subs) flushable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.up && (s.mu.dirty.Len() > 0 && s.mu.names.Len() < maxUnanswered || s.mu.pingDue)
}

// dueLocked compares what is wanted of t with what was sent to the server.
func (s *subs) dueLocked(t *topic) verb {
	wanted, subscribed := t.first != nil, t.sent == verbSubscribe
	switch {
	case t.flight == maxFlight:
		return verbNone // the next answer queues t again
	case wanted && !subscribed:
		return verbSubscribe
	case !wanted && subscribed:
		return verbUnsubscribe
	case wanted && t.flight == 0:
		// A second Channel came to a confirmed topic. Asking the server once more is
		// simpler than a confirmation of our own, and as ordered.
		for ch := t.first; ch != nil; ch = ch.next {
			if ch.live != s.mu.conn {
				return verbSubscribe
			}
		}
	case !wanted && t.flight == 0:
		s.forgetLocked(t)
	}
	return verbNone
}

// appendLocked appends one command and files it under the unanswered.
func (s *subs) appendLocked(dst []byte, v verb, now clock.Instant, topics ...*topic) []byte {
	if len(topics) == 0 {
		return dst
	}
	dst = wire.AppendArrayHeader(dst, 1+len(topics))
	dst = wire.AppendBulk(dst, v.word(s.sharded))
	for _, t := range topics {
		dst = wire.AppendBulk(dst, t.name)
		if t.settled() {
			s.mu.confirmed--
		}
		t.sent = v
		t.wrote++
		t.flight++
		s.mu.names.Push(t)
	}
	n := uint16(len(topics))
	s.mu.cmds.Push(command{verb: v, left: n, whole: n, at: now})
	if v == verbUnsubscribe && s.sharded {
		dst = wire.AppendCommand(dst, verbPing.String())
	}
	return dst
}

// settled reports whether the server has confirmed t, by its latest word on it.
func (t *topic) settled() bool { return t.sent == verbSubscribe && t.flight == 0 }

// answeredLocked takes the oldest topic out of those in flight. latest says that nothing
// else about it is in flight.
func (s *subs) answeredLocked() (t *topic, latest bool) {
	t = s.mu.names.Pop()
	t.flight--
	c := s.mu.cmds.Front()
	if c.left--; c.left == 0 {
		s.mu.cmds.Pop()
	}
	return t, t.flight == 0
}

// surprise is the error of a connection that gives unexpected answers, and must be closed.
func surprise(format string, args ...any) error {
	return fmt.Errorf("%w: pub/sub connection: %s", wire.ErrProtocol, fmt.Sprintf(format, args...))
}
