package faultproxy

import (
	"strings"

	"github.com/tidwall/redcon"
)

// replies returns how many replies a command has.
func replies(name string, args int) int {
	switch name {
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE":
		return max(args, 1) // none: one error
	case "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE":
		if args == 0 {
			return untilZero
		}
		return args
	}
	return 1
}

// settleLocked deals with the entries at the head that wait for no reply.
func (c *conn) settleLocked() {
	for len(c.expected) > 0 && c.expected[0].trap != nil {
		t := c.expected[0].trap
		switch {
		case t.verb == replace:
			c.answerLocked(item{bytes: t.reply, then: t})
		case t.verb == cutBefore, c.expected[0].replies == 0: // cutAfter, executed
			c.answerLocked(item{cut: true, then: t})
		default:
			return
		}
		c.expected = c.expected[1:]
	}
}

// answerLocked puts an item into the down queue.
func (c *conn) answerLocked(it item) {
	c.proxy.mu.Lock()
	it.due = after(c.proxy.lagLocked(c).down)
	c.proxy.mu.Unlock()
	c.down.put(it)
}

// matchLocked books a reply to the command at the head of the line. It reports
// whether the client is to see it.
func (c *conn) matchLocked(reply redcon.RESP) bool {
	var push string
	var count int64
	if c.subscribes {
		push, count = pushOf(reply)
	}
	if len(c.expected) == 0 || strings.HasSuffix(push, "message") {
		return true // nobody's reply
	}
	head := &c.expected[0]
	visible := head.trap == nil
	switch {
	case head.replies == untilZero && strings.HasSuffix(push, "unsubscribe") && count > 0:
		return visible // more to come
	case head.replies > 1 && reply.Type != redcon.Error:
		head.replies--
		return visible
	}
	head.replies = 0
	if visible {
		c.expected = c.expected[1:]
	}
	return visible
}

// pushOf returns the kind of a pub/sub reply and the integer at its end, "" for
// any other reply.
func pushOf(reply redcon.RESP) (kind string, count int64) {
	if reply.Type != redcon.Array || reply.Count < 3 {
		return "", 0
	}
	i := 0
	reply.ForEach(func(e redcon.RESP) bool {
		switch {
		case i == 0 && e.Type == redcon.Bulk:
			kind = e.String()
		case i == 2 && e.Type == redcon.Integer:
			count = e.Int()
		}
		i++
		return i < 3
	})
	return kind, count
}
