package resp

import (
	"github.com/pawl-lock/pawl/resp/internal/pipeline"
	"github.com/pawl-lock/pawl/resp/wire"
)

// group is requests of a durable that share a WAIT, on one connection. What is counted in it
// ends with that connection: it answers, or fails, whatever was sent on it. The fields are
// guarded by durable.mu, but for those that never change.
type group struct {
	durable  *durable
	conn     *pipeline.Pipeline // nil: the lane was down
	pending  int                // requests without an answer
	answered []*member          // requests whose answers wait for a WAIT
	waiting  bool               // a WAIT is out
	asked    int                // what it was sent with; it stands still while it is out
}

// waitFor begins a WAIT for these, as far as it is known who is there.
func (g *group) waitFor(members []*member, there attendance) {
	g.waiting, g.asked = true, 0
	for _, m := range members {
		g.asked = max(g.asked, there.worth(m.request.Wants()))
	}
}

// roleQuestion asks which replicas are attached.
type roleQuestion group

var roleBytes = wire.AppendCommand(nil, "ROLE")

// AppendCommand implements Request.
func (q *roleQuestion) AppendCommand(dst []byte, _ Form) []byte {
	return append(dst, roleBytes...)
}

// Complete implements Request.
func (q *roleQuestion) Complete(r Reply) {
	d := q.durable
	there := d.link.node.attend(r)
	d.mu.Lock()
	d.mu.there = there
	d.mu.Unlock()
}

// ackQuestion is the WAIT behind a group.
type ackQuestion group

// AppendCommand implements Request.
func (q *ackQuestion) AppendCommand(dst []byte, _ Form) []byte {
	dst = append(dst, "*3\r\n$4\r\nWAIT\r\n"...)
	dst = wire.AppendBulkInt(dst, int64(q.asked))
	return wire.AppendBulkInt(dst, max(1, q.durable.timeout.Milliseconds())) // 0 would be for ever
}

// Complete implements Request.
func (q *ackQuestion) Complete(r Reply) {
	d := q.durable
	err := r.Err
	if err == nil && r.Value.Kind != wire.KindInt {
		err = ErrProtocol
	}
	d.mu.Lock()
	q.waiting = false
	var done, again []*member
	for _, m := range q.answered {
		var more bool
		m.ack, more = d.mu.there.judge(m.request.Wants(), q.asked, int(r.Value.Int), err)
		if more {
			again = append(again, m)
			continue
		}
		m.reply.Now, m.reply.Ack = r.Now, &m.ack
		done = append(done, m)
	}
	q.answered = again
	d.mu.Unlock()
	defer d.pump()
	deliver(done)
}

// deliver completes members. A panic of one does not cost the others their reply.
func deliver(done []*member) {
	defer func() {
		if len(done) > 0 {
			deliver(done)
		}
	}()
	for len(done) > 0 {
		m := done[0]
		done = done[1:]
		m.request.Complete(m.reply)
	}
}
