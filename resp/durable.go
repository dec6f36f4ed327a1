package resp

import (
	"sync"
	"time"

	"github.com/pawl-lock/pawl/resp/internal/exchange"
	"github.com/pawl-lock/pawl/resp/internal/fifo"
	"github.com/pawl-lock/pawl/resp/internal/pipeline"
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
// now; see attendance for those that are away. It is answered before WAIT is, but WAIT was sent
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
//  3. A request is in queue, or counted in pending of a group, or in its answered, or
//     completed.
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
		queue   fifo.Backlog[*member] // for the next groups
		group   *group                // in flight, or nil
		pumping bool
		there   attendance // of the latest ROLE
	}
}

// maxGroup bounds how many requests share a WAIT, and so how many tries a server that
// has just come back gets at once.
const maxGroup = 256

// member is a request on its way through a durable.
type member struct {
	request DurableRequest
	durable *durable
	group   *group // from when it is sent
	hops    uint8  // as in entry
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
		g, members, due := d.nextLocked()
		if !due {
			d.mu.pumping = false
			return
		}
		d.mu.Unlock()
		sent := len(members) == 0 // then the WAIT is for those that have been sent before
		for _, m := range members {
			if m.request.Wanted() {
				sent = true
				d.lane.SendOn(g.conn, pipeline.Entry{Request: m, Hops: m.hops, Asked: m.asked})
			} else {
				d.lane.Refuse(pipeline.Entry{Request: m}, exchange.RefusedUnwanted)
			}
		}
		if sent {
			d.lane.SendOn(g.conn, pipeline.Entry{Request: (*roleQuestion)(g), Always: true})
			d.lane.SendOn(g.conn, pipeline.Entry{Request: (*ackQuestion)(g), Always: true})
		}
		d.mu.Lock()
		g.waiting = g.waiting && sent
	}
}

// nextLocked begins the next group, whose members are to be sent, or another WAIT for the
// one that is out. Nothing is due as long as an answer is outstanding that will call pump.
func (d *durable) nextLocked() (g *group, members []*member, due bool) {
	g = d.mu.group
	if g != nil && (g.waiting || g.pending > 0) {
		return nil, nil, false
	}
	if g != nil && len(g.answered) > 0 {
		g.waitFor(g.answered, d.mu.there)
		return g, nil, true
	}
	queue := &d.mu.queue
	if queue.Len() == 0 {
		d.mu.group = nil // it has a connection, which may have ended
		return nil, nil, false
	}
	g = &group{durable: d, conn: d.lane.Connection()}
	for len(members) < maxGroup && queue.Len() > 0 {
		m := queue.Pop()
		m.group = g
		members = append(members, m)
	}
	queue.Shrink()
	g.pending = len(members)
	g.waitFor(members, d.mu.there)
	d.mu.group = g
	return g, members, true
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
		m.left(false)
		m.request.Complete(r)
		return
	}
	m.reply = r
	m.reply.Value = r.Value.Clone()
	m.left(true)
}

// left notes that m waits for nothing in its group any more, or for the WAIT.
func (m *member) left(answered bool) {
	d := m.durable
	d.mu.Lock()
	defer d.mu.Unlock()
	m.group.pending--
	if answered {
		m.group.answered = append(m.group.answered, m)
	}
}

// moveTo is for a member that its node has sent on: it goes into a group there.
func (m *member) moveTo(to *durable, hops uint8, asking bool) {
	from := m.durable
	m.left(false)
	m.hops, m.asked = hops, asking
	to.submit(m)
	from.pump()
}
