package pubsub

import (
	"fmt"
	"strings"

	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/wire"
)

// listener is what one connection's reader needs beside subs.
type listener struct {
	calls []request.ChannelHandler // scratch: the handlers to call, no lock held
}

// reply takes one decoded reply of connection conn and calls the handlers. An
// error means that the connection must be closed.
func (s *subs) reply(l *listener, conn uint32, v wire.Value) error {
	switch v.Kind {
	case wire.KindArray:
		return s.push(l, conn, v)
	case wire.KindError:
		return s.refused(l, wire.NewServerError(v.Bytes))
	case wire.KindStatus: // PONG while nothing is subscribed
		return s.pong(l)
	}
	return surprise("a reply that is no array")
}

// push handles an array: a message, a confirmation, or PONG in subscribed mode.
func (s *subs) push(l *listener, conn uint32, v wire.Value) error {
	var e [3]wire.Value
	v.Each(func(i int, x wire.Value) bool {
		if i < len(e) {
			e[i] = x
		}
		return i < len(e)
	})
	kind := string(e[0].Bytes)
	if s.sharded {
		kind = strings.TrimPrefix(kind, "s")
	}
	switch {
	case kind == "message" && v.Len() == 3:
		s.message(l, conn, e[1].Bytes, e[2].Bytes)
		return nil
	case kind == "subscribe" && v.Len() == 3:
		return s.confirmed(l, conn, verbSubscribe, e[1].Bytes)
	case kind == "unsubscribe" && s.sharded:
		if !s.ended(e[1].Bytes) {
			s.expelled(conn, e[1].Bytes)
		}
		return nil
	case kind == "unsubscribe" && v.Len() == 3:
		return s.confirmed(l, conn, verbUnsubscribe, e[1].Bytes)
	case kind == "pong":
		return s.pong(l)
	}
	return surprise("an array of an unknown kind")
}

func (s *subs) message(l *listener, conn uint32, name, payload []byte) {
	l.calls = l.calls[:0]
	s.mu.Lock()
	s.mu.messages++
	if t := s.mu.topics[string(name)]; t != nil {
		for ch := t.first; ch != nil; ch = ch.next {
			if ch.live == conn {
				l.calls = append(l.calls, ch.handler)
			}
		}
	}
	s.mu.Unlock()
	deliver(l.calls, request.Message, payload, nil)
}

// confirmed handles the answer for one topic.
func (s *subs) confirmed(l *listener, conn uint32, v verb, name []byte) error {
	l.calls = l.calls[:0]
	if err := s.confirm(l, conn, v, name); err != nil {
		return err
	}
	deliver(l.calls, request.Subscribed, nil, nil)
	return nil
}

func (s *subs) confirm(l *listener, conn uint32, v verb, name []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.cmds.Len() == 0 || s.mu.cmds.Front().verb != v || (*s.mu.names.Front()).name != string(name) {
		return surprise("a confirmation of %v that is not the next one expected", v)
	}
	s.confirmLocked(l, conn, v)
	return nil
}

// confirmLocked takes the oldest answer that is due for a confirmation of v.
func (s *subs) confirmLocked(l *listener, conn uint32, v verb) {
	t, latest := s.answeredLocked()
	t.known = v == verbSubscribe
	again := false // somebody came after the command was written
	if latest && v == verbSubscribe {
		s.mu.confirmed++
		t.alone, t.refusals = false, 0
		for ch := t.first; ch != nil; ch = ch.next {
			switch {
			case ch.live == conn:
			case ch.came == t.wrote:
				again = true
			default:
				ch.live = conn
				l.calls = append(l.calls, ch.handler)
			}
		}
	}
	// Was something waiting for this answer?
	if again || t.first == nil || t.sent != verbSubscribe {
		s.queueLocked(t)
	}
}

// expelled handles the end of a sharded subscription that nobody asked for: the slot has
// left this node. The next tick asks for the channel again, here or wherever its slot has
// been found by then.
func (s *subs) expelled(conn uint32, name []byte) {
	var lost lostChannels
	s.mu.Lock()
	if t := s.mu.topics[string(name)]; t != nil && t.conn == conn {
		t.known = false
		for ch := t.first; ch != nil; ch = ch.next {
			if ch.live == conn {
				ch.live = 0
				lost.add(ch)
			}
		}
		if t.settled() { // else the answer to what is in flight decides
			t.sent = verbNone
			s.mu.confirmed--
			s.mu.retries.add(t)
		}
	}
	s.mu.Unlock()
	s.deliverLost(&lost)
	s.reportMoved()
}

// reportMoved says that a slot may be somewhere else by now. No lock is held.
func (s *subs) reportMoved() {
	if s.moved != nil {
		s.moved()
	}
}

// pong handles the answer to a PING.
func (s *subs) pong(l *listener) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.fencedLocked(); c != nil && c.answered() {
		s.passLocked(l, c)
		return nil
	}
	if s.mu.cmds.Len() == 0 || s.mu.cmds.Front().verb != verbPing {
		return surprise("a PONG that nobody asked for")
	}
	s.mu.cmds.Pop()
	return nil
}

// refused handles an error, which answers a whole command, or says something of the whole
// connection: a PING that is refused so is no sign of life.
func (s *subs) refused(l *listener, e *wire.ServerError) error {
	if request.RefusalOf(e).Of == request.OfConnection {
		return fmt.Errorf("resp: the connection is refused: %w", e)
	}
	l.calls = l.calls[:0]
	if err := s.refuse(l, e); err != nil {
		return err
	}
	deliver(l.calls, request.Refused, nil, e)
	if request.RefusalOf(e).Of == request.OfDeployment {
		s.reportMoved()
	}
	return nil
}

func (s *subs) refuse(l *listener, e *wire.ServerError) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.cmds.Len() == 0 {
		return surprise("the error %q", e.Message)
	}
	if c := s.fencedLocked(); c != nil {
		if c.takes(e) {
			s.passLocked(l, c)
		}
		return nil
	}
	c := s.mu.cmds.Front()
	if c.verb == verbPing {
		s.mu.cmds.Pop()
		return nil // the server is alive
	}
	if c.left != c.whole {
		return surprise("the error %q amid the answers to %v", e.Message, c.verb)
	}
	s.refuseLocked(l, e)
	return nil
}

// refuseLocked takes e for the answer to the oldest command. It distinguishes a refusal that will last
// (an ACL) from one that may pass (the server is busy, or loading). The server checks the ACL before it
// runs the command, so one forbidden channel has the whole batch refused. Then each channel is asked for
// by itself, and whichever is refused is forbidden. Any other is asked for ever more seldom, whatever
// the words; its waiters ask for the lock now and then.
func (s *subs) refuseLocked(l *listener, e *wire.ServerError) {
	c := *s.mu.cmds.Front()
	r := request.RefusalOf(e)
	denied := r.Forbidden()
	if c.verb == verbSubscribe && !r.NotNow() && !s.mu.complained && (!denied || c.whole == 1) && !(c.whole == 1 && (*s.mu.names.Front()).quiet()) {
		s.mu.complained, s.mu.complaint = true, e
	}
	for range c.whole {
		t, latest := s.answeredLocked()
		t.alone = t.alone || denied
		switch {
		case !latest: // the answer to the command behind it decides
		case denied && c.verb == verbUnsubscribe:
			// Still subscribed on the server, but nobody here will get the messages.
			t.known = false
			s.queueLocked(t)
		case denied && c.whole == 1:
			s.dropLocked(l, t)
		default:
			// The command did not run: back to what the server knew before it.
			t.sent = verbNone
			if t.known {
				t.sent = verbSubscribe
				s.mu.confirmed++
			}
			if denied {
				s.queueLocked(t)
			} else {
				t.refusals = min(t.refusals+1, maxRefusals)
				s.mu.retries.add(t)
			}
		}
	}
}

// dropLocked ends t and all its Channels.
func (s *subs) dropLocked(l *listener, t *topic) {
	for ch := t.first; ch != nil; {
		next := ch.next
		ch.topic, ch.next, ch.live = nil, nil, 0
		l.calls = append(l.calls, ch.handler)
		ch = next
	}
	t.first, t.sent = nil, verbNone
	s.forgetLocked(t)
}
