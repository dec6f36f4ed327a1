package resp

import (
	"sync"
	"time"

	"github.com/pawl-lock/pawl/resp/internal/exchange"
	"github.com/pawl-lock/pawl/resp/internal/fifo"
	"github.com/pawl-lock/pawl/resp/internal/pipeline"
	"github.com/pawl-lock/pawl/resp/wire"
)

// durable sends requests that replicas must acknowledge, over a lane of its own: after a
// WAIT the server reads nothing more from a connection until it has answered the WAIT.
// Requests go in groups, each with one WAIT, whose count serves all of them:
//
//	requests of a group, ROLE, WAIT    ... further requests queue up
//	answers, replicas attached, how many have acknowledged: the group is over
//	requests of the next group, ...
//
// ROLE is in each group because "all" must mean at least the replicas that are attached
// now; see group for those that are away. It is answered before WAIT is, but WAIT was sent
// with the number of the previous group. If that was too low, another WAIT follows.
//
// Invariants:
//
//  1. At most one group is in flight, and its WAIT is sent last. So no request lies
//     unread behind a WAIT, where it would be executed later than expected. (A request
//     that is sent again after NOSCRIPT does, but a server drops what it has not read
//     from a connection that ends.)
//  2. A WAIT counts for the requests that were answered before it, on the same
//     connection. On another one it is satisfied at once, by every replica. So a group
//     keeps the connection that it began with. (A request that had to be sent again is
//     answered after the WAIT; then another WAIT follows.)
//  3. A request is in queue, or counted in pending, or in answered, or completed.
//  4. pumping is set while a goroutine is in pump. It looks again before it leaves,
//     so a goroutine that finds it set has nothing to do.
//
// mu is never held over a call of the lane or of a Request's method.
type durable struct {
	lane    *pipeline.Lane
	link    *link
	timeout time.Duration // of one WAIT
	limit   int           // of the queue, for what has the rank Refuse

	mu struct {
		sync.Mutex
		queue    fifo.Backlog[*member] // for the next groups
		pending  int                   // requests of the group without an answer
		answered []*member             // requests of the group whose answers wait for a WAIT
		waiting  bool                  // a WAIT is out
		pumping  bool
		conn     *pipeline.Pipeline // of the group; nil: the lane was down

		asked int        // what the latest WAIT was sent with
		there attendance // of the latest ROLE
	}
}

// maxGroup bounds how many requests share a WAIT, and so how many tries a server that
// has just come back gets at once.
const maxGroup = 256

// member is a request on its way through a durable.
type member struct {
	request DurableRequest
	durable *durable
	hops    uint8 // as in entry
	asked   bool
	reply   Reply
	ack     Ack // reply.Ack
}

func newDurable(l *pipeline.Lane, k *link, timeout time.Duration, limit int) *durable {
	d := &durable{lane: l, link: k, timeout: timeout, limit: limit}
	d.mu.there.attached = -1
	return d
}

// submit takes m over. It never blocks, and completes m at once if the lane is down.
func (d *durable) submit(m *member) {
	m.durable = d
	d.link.wake()
	if !d.lane.Up() {
		d.lane.Refuse(pipeline.Entry{Request: m.request, Asked: m.asked}, d.lane.Refusal())
		return
	}
	if m.request.Wants() < 0 && !d.link.node.client.counted() {
		d.lane.Refuse(pipeline.Entry{Request: m.request, Asked: m.asked}, exchange.RefusedUncounted)
		return
	}
	rank := exchange.RankOf(m.request)
	d.mu.Lock()
	if rank == Refuse && d.mu.queue.Len() >= d.limit {
		d.mu.Unlock()
		d.lane.Refuse(pipeline.Entry{Request: m.request}, exchange.RefusedFull)
		return
	}
	d.mu.queue.Push(m, rank)
	d.mu.Unlock()
	d.pump()
}

// pump sends what is due, as long as nothing is out.
func (d *durable) pump() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.pumping {
		return
	}
	d.mu.pumping = true
	for {
		group, due := d.nextLocked()
		if !due {
			d.mu.pumping = false
			return
		}
		conn := d.mu.conn
		d.mu.Unlock()
		sent := len(group) == 0 // then the WAIT is for those of the group before
		for _, m := range group {
			if m.request.Wanted() {
				sent = true
				d.lane.SendOn(conn, pipeline.Entry{Request: m, Hops: m.hops, Asked: m.asked})
			} else {
				d.lane.Refuse(pipeline.Entry{Request: m}, exchange.RefusedUnwanted)
			}
		}
		if sent {
			d.lane.SendOn(conn, pipeline.Entry{Request: (*roleQuestion)(d), Always: true})
			d.lane.SendOn(conn, pipeline.Entry{Request: (*ackQuestion)(d), Always: true})
		}
		d.mu.Lock()
		d.mu.waiting = d.mu.waiting && sent
	}
}

// nextLocked begins the next group, or another WAIT for the one that is out. Nothing
// is due as long as an answer is outstanding that will call pump.
func (d *durable) nextLocked() (group []*member, due bool) {
	m := &d.mu
	if m.waiting || m.pending > 0 || len(m.answered)+m.queue.Len() == 0 {
		return nil, false
	}
	covered := m.answered
	if len(covered) == 0 {
		for len(group) < maxGroup && m.queue.Len() > 0 {
			group = append(group, m.queue.Pop())
		}
		m.queue.Shrink()
		m.pending = len(group)
		m.conn = d.lane.Connection()
		covered = group
	}
	m.waiting, m.asked = true, 0
	for _, c := range covered {
		m.asked = max(m.asked, m.there.worth(c.request.Wants()))
	}
	return group, true
}

// left notes that a member of the group waits for nothing any more, or for the WAIT.
func (d *durable) left(m *member, answered bool) {
	d.mu.Lock()
	d.mu.pending--
	if answered {
		d.mu.answered = append(d.mu.answered, m)
	}
	d.mu.Unlock()
}

// AppendCommand implements Request.
func (m *member) AppendCommand(dst []byte, form Form) []byte {
	return m.request.AppendCommand(dst, form)
}

// Complete implements Request.
func (m *member) Complete(r Reply) {
	d := m.durable
	defer d.pump() // this may have been all that the group waited for
	if r.Err != nil || !m.request.NeedsAck(r.Value) {
		d.left(m, false)
		m.request.Complete(r)
		return
	}
	m.reply = r
	m.reply.Value = r.Value.Clone()
	d.left(m, true)
}

// moveTo is for a member that its node has sent on: it goes into a group there.
func (m *member) moveTo(to *durable, hops uint8, asking bool) {
	from := m.durable
	from.left(m, false)
	m.hops, m.asked = hops, asking
	to.submit(m)
	from.pump()
}

// roleQuestion asks which replicas are attached.
type roleQuestion durable

var roleBytes = wire.AppendCommand(nil, "ROLE")

// AppendCommand implements Request.
func (q *roleQuestion) AppendCommand(dst []byte, _ Form) []byte {
	return append(dst, roleBytes...)
}

// Complete implements Request.
func (q *roleQuestion) Complete(r Reply) {
	there := q.link.node.attend(r)
	q.mu.Lock()
	q.mu.there = there
	q.mu.Unlock()
}

// ackQuestion is the WAIT behind a group.
type ackQuestion durable

// AppendCommand implements Request. asked stands still while the question is out.
func (q *ackQuestion) AppendCommand(dst []byte, _ Form) []byte {
	dst = append(dst, "*3\r\n$4\r\nWAIT\r\n"...)
	dst = wire.AppendBulkInt(dst, int64(q.mu.asked))
	return wire.AppendBulkInt(dst, max(1, q.timeout.Milliseconds())) // 0 would be for ever
}

// Complete implements Request.
func (q *ackQuestion) Complete(r Reply) {
	d := (*durable)(q)
	err := r.Err
	if err == nil && r.Value.Kind != wire.KindInt {
		err = ErrProtocol
	}
	d.mu.Lock()
	d.mu.waiting = false
	var done, again []*member
	for _, m := range d.mu.answered {
		var more bool
		m.ack, more = d.mu.there.judge(m.request.Wants(), d.mu.asked, int(r.Value.Int), err)
		if more {
			again = append(again, m)
			continue
		}
		m.reply.Now, m.reply.Ack = r.Now, &m.ack
		done = append(done, m)
	}
	d.mu.answered = again
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
