package replication

import (
	"sync"
	"time"

	"github.com/pawl-lock/pawl/resp/internal/fifo"
	"github.com/pawl-lock/pawl/resp/internal/pipeline"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/topology"
)

// Lane sends requests that replicas must acknowledge, over a plain lane of its own: after a
// WAIT the server reads nothing more from a connection until it has answered the WAIT.
// Requests go in groups, each with one WAIT, whose count serves all of them:
//
//	requests of a group, ROLE, WAIT    ... further requests queue up
//	answers, replicas attached, how many have acknowledged: the group is over
//	requests of the next group, ...
//
// A request of a group:
//
//	queue -- nothing is out --> pending -- answered, needs acks --> answered -- WAIT behind it --> completed
//	                              +-- error, or needs none --> completed  +-- WAIT had too low a number: another WAIT
//	                              +-- MOVED, ASK --> queue of the other node
//
// ROLE is in each group because "all" must mean at least the replicas that are attached
// now; see replicas for those that are away. It is answered before WAIT is, but WAIT was sent
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
// mu is never held over a call of the plain lane, of a function of Config or of a Request's
// method, except for Wants.
type Lane struct {
	cfg Config

	mu struct {
		sync.Mutex
		queue    fifo.Backlog[*Member] // for the next groups
		group    *group                // in flight, or nil
		pumping  bool
		replicas replicas // of the latest ROLE
	}
}

// Config is what a Lane needs to know, all of it required.
type Config struct {
	Plain     *pipeline.Lane // which nobody else uses
	Timeout   time.Duration  // of one WAIT
	Limit     int            // of the queue, for what has PriorityNoWait
	Addr      string         // of the primary
	HighWater *HighWater     // of its replicas

	// Wake is called with each request, before all else: Plain may not be connected before it
	// is used.
	Wake func()
	// Counted reports whether Group can be answered. If not, that is found out from now on.
	Counted func() bool
	// Group returns the primary at an address with its replicas, as the deployment lists
	// them. It is called on event loops.
	Group func(addr string) (*topology.Group, error)
}

// MaxGroup bounds how many requests share a WAIT, and so how many tries a server that
// has just come back gets at once.
const MaxGroup = 256

// New returns a Lane over cfg.Plain.
func New(cfg Config) *Lane {
	l := &Lane{cfg: cfg}
	l.mu.replicas.attached = -1
	return l
}

// Plain returns the lane that l sends over.
func (l *Lane) Plain() *pipeline.Lane { return l.cfg.Plain }

// Submit takes r over. It never blocks, and completes r at once if the lane is down.
func (l *Lane) Submit(r request.DurableRequest) { l.submit(&Member{request: r}) }

func (l *Lane) submit(m *Member) {
	m.lane = l
	l.cfg.Wake()
	if l.cfg.Plain.Err() != nil {
		l.cfg.Plain.Refuse(pipeline.Entry{Request: m.request, Asked: m.asked}, l.cfg.Plain.Refusal())
		return
	}
	if m.request.Wants() < 0 && !l.cfg.Counted() {
		l.cfg.Plain.Refuse(pipeline.Entry{Request: m.request, Asked: m.asked}, request.RefusedUncounted)
		return
	}
	priority := request.PriorityOf(m.request)
	l.mu.Lock()
	if priority == request.PriorityNoWait && l.mu.queue.Len() >= l.cfg.Limit {
		l.mu.Unlock()
		l.cfg.Plain.Refuse(pipeline.Entry{Request: m.request}, request.RefusedFull)
		return
	}
	l.mu.queue.Push(m, priority)
	l.mu.Unlock()
	l.pump()
}

// pump sends what is due, as long as nothing is out.
func (l *Lane) pump() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.pumping {
		return
	}
	l.mu.pumping = true
	for {
		g, members, due := l.nextLocked()
		if !due {
			l.mu.pumping = false
			return
		}
		l.mu.Unlock()
		sent := len(members) == 0 // then the WAIT is for those that have been sent before
		for _, m := range members {
			if m.request.Wanted() {
				sent = true
				l.cfg.Plain.SendOn(g.conn, pipeline.Entry{Request: m, Hops: m.hops, Asked: m.asked})
			} else {
				l.cfg.Plain.Refuse(pipeline.Entry{Request: m}, request.RefusedUnwanted)
			}
		}
		if sent {
			l.cfg.Plain.SendOn(g.conn, pipeline.Entry{Request: (*roleQuestion)(g), Always: true})
			l.cfg.Plain.SendOn(g.conn, pipeline.Entry{Request: (*ackQuestion)(g), Always: true})
		}
		l.mu.Lock()
		g.waiting = g.waiting && sent
	}
}

// nextLocked begins the next group, whose members are to be sent, or another WAIT for the
// one that is out. Nothing is due as long as an answer is outstanding that will call pump.
func (l *Lane) nextLocked() (g *group, members []*Member, due bool) {
	g = l.mu.group
	if g != nil && (g.waiting || g.pending > 0) {
		return nil, nil, false
	}
	if g != nil && len(g.answered) > 0 {
		g.waitFor(g.answered, l.mu.replicas)
		return g, nil, true
	}
	queue := &l.mu.queue
	if queue.Len() == 0 {
		l.mu.group = nil // it has a connection, which may have ended
		return nil, nil, false
	}
	g = &group{lane: l, conn: l.cfg.Plain.Connection()}
	for len(members) < MaxGroup && queue.Len() > 0 {
		m := queue.Pop()
		m.group = g
		members = append(members, m)
	}
	queue.Shrink()
	g.pending = len(members)
	g.waitFor(members, l.mu.replicas)
	l.mu.group = g
	return g, members, true
}
