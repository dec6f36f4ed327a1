package replication

import (
	"github.com/pawl-lock/pawl/resp/internal/pipeline"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/wire"
)

// group is requests of a Lane that share a WAIT, on one connection. What is counted in it
// ends with that connection: it answers, or fails, whatever was sent on it. The fields are
// guarded by Lane.mu, but for those that never change.
type group struct {
	lane     *Lane
	conn     *pipeline.Pipeline // nil: the lane was down
	pending  int                // requests without an answer
	answered []*Member          // requests whose answers wait for a WAIT
	waiting  bool               // a WAIT is out
	asked    int                // what it was sent with; it stands still while it is out
}

// waitFor begins a WAIT for these, as far as it is known who is there.
func (g *group) waitFor(members []*Member, state replicas) {
	g.waiting, g.asked = true, 0
	for _, m := range members {
		g.asked = max(g.asked, state.waitFor(m.request.Wants()))
	}
}

// roleQuestion asks which replicas are attached.
type roleQuestion group

var roleBytes = wire.AppendCommand(nil, "ROLE")

// AppendCommand implements Request.
func (q *roleQuestion) AppendCommand(dst []byte, _ request.ScriptForm) []byte {
	return append(dst, roleBytes...)
}

// Complete implements Request.
func (q *roleQuestion) Complete(r request.Reply) {
	l := q.lane
	state := l.readRole(r)
	l.mu.Lock()
	l.mu.replicas = state
	l.mu.Unlock()
}

// ackQuestion is the WAIT behind a group.
type ackQuestion group

// AppendCommand implements Request.
func (q *ackQuestion) AppendCommand(dst []byte, _ request.ScriptForm) []byte {
	dst = append(dst, "*3\r\n$4\r\nWAIT\r\n"...)
	dst = wire.AppendBulkInt(dst, int64(q.asked))
	return wire.AppendBulkInt(dst, max(1, q.lane.cfg.Timeout.Milliseconds())) // 0 would be for ever
}

// Complete implements Request.
func (q *ackQuestion) Complete(r request.Reply) {
	l := q.lane
	err := r.Err
	if err == nil && r.Value.Kind != wire.KindInt {
		err = wire.ErrProtocol
	}
	l.mu.Lock()
	q.waiting = false
	var done, again []*Member
	for _, m := range q.answered {
		var more bool
		m.ack, more = l.mu.replicas.evaluate(m.request.Wants(), q.asked, int(r.Value.Int), err)
		if more {
			again = append(again, m)
			continue
		}
		m.reply.Now, m.reply.Ack = r.Now, &m.ack
		done = append(done, m)
	}
	q.answered = again
	l.mu.Unlock()
	defer l.pump()
	deliver(done)
}

// deliver completes members. A panic of one does not cost the others their reply.
func deliver(done []*Member) {
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
