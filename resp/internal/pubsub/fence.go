package pubsub

import (
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/wire"
)

// A sharded UNSUBSCRIBE is fenced: a PING goes right behind it. For it may seem to have two answers:
//
//	client              server
//	SUNSUBSCRIBE x
//	                    the slot leaves: sunsubscribe x, unasked
//	                    reads SUNSUBSCRIBE x: -MOVED, -CLUSTERDOWN ...
//
// Or the first was the answer, and the error belongs to the command behind it. But what comes before the
// answer to the PING belongs to the UNSUBSCRIBE: the end of the subscription, an error, or both.

// fencedLocked returns the sharded UNSUBSCRIBE whose turn it is to be answered; nil if it is the turn of
// another command.
func (s *subs) fencedLocked() *command {
	if !s.sharded || s.mu.cmds.Len() == 0 || s.mu.cmds.Front().verb != verbUnsubscribe {
		return nil
	}
	return s.mu.cmds.Front()
}

// ended takes the end of a sharded subscription, asked or unasked, if an UNSUBSCRIBE of that name is to
// be answered.
func (s *subs) ended(name []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.fencedLocked()
	if c == nil || (*s.mu.names.Front()).name != string(name) {
		return false
	}
	c.ended = true
	return true
}

// answered reports whether an answer to the UNSUBSCRIBE has come.
func (c *command) answered() bool { return c.ended || c.refusal != nil }

// takes takes an error, and reports whether it answers the PING, which may be refused, too. That comes
// behind the answer to the UNSUBSCRIBE: behind an error for certain, and behind the end of the subscription
// if it is PING that is forbidden.
func (c *command) takes(e *wire.ServerError) (pinged bool) {
	if c.refusal != nil || c.ended && request.RefusalOf(e).Forbidden() {
		return true
	}
	c.refusal = e
	return false
}

// passLocked is called when the PING behind c, the oldest command, has been answered.
func (s *subs) passLocked(l *listener, c *command) {
	if c.ended {
		s.confirmLocked(l, s.mu.conn, verbUnsubscribe)
		return
	}
	s.refuseLocked(l, c.refusal)
}
