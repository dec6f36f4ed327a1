package pipeline

import (
	"cmp"
	"fmt"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/wire"
)

// idleAfter is how long a connection may be silent before a PING asks whether it
// is still there, and before the memory of its busiest moment is given back.
const idleAfter = 10 * time.Second

// OnClose completes whatever is in flight, oldest first. The transport's count is final:
// a command that ends beyond it has not reached the server.
func (p *Pipeline) OnClose(err error) {
	m := &p.mu
	m.Lock()
	m.dead = true
	m.Unlock()
	p.lane.ended(p, err)

	outcome := forfeit{
		sent:    p.t.Sent(),
		notSent: &request.Failure{Class: request.ErrNotSent, Cause: err},
		unknown: &request.Failure{Class: request.ErrOutcomeUnknown, Cause: err},
	}
	if _, unreadable := err.(*wire.ProtocolError); unreadable {
		// It is the oldest command whose reply cannot be read. The others have lost their connection to that.
		outcome.oldest = outcome.unknown
		outcome.unknown = &request.Failure{Class: request.ErrOutcomeUnknown, Cause: fmt.Errorf("resp: the connection ended with the reply to another command: %w", err)}
	}
	now := p.lane.cfg.Clock.Now()
	batch := p.reader.batch[:]
	for {
		n := p.forfeit(batch, &outcome)
		if n == 0 {
			break
		}
		p.complete(batch[:n], now)
	}
	p.reader = replyReader{}
	p.lane.cfg.Down(err)
}

// forfeit is what becomes of commands that will get no reply.
type forfeit struct {
	sent             uint64 // bytes that the server may have received
	notSent, unknown error
	oldest           error // in place of unknown, of the first; may be nil
}

// forfeit takes entries off the FIFO into batch.
func (p *Pipeline) forfeit(batch []Answer, outcome *forfeit) (n int) {
	m := &p.mu
	m.Lock()
	defer m.Unlock()
	for n < len(batch) && m.fifo.Len()+m.backlog.Len() > 0 {
		if m.fifo.Len() == 0 {
			e := m.backlog.Pop()
			batch[n] = Answer{Request: e.Request, err: outcome.notSent, Hops: e.Hops, asked: e.Asked}
			n++
			continue
		}
		a := Answer{err: outcome.notSent}
		if m.fifo.Front().end <= outcome.sent {
			a.Sent, a.err = p.stampLocked(), cmp.Or(outcome.oldest, outcome.unknown)
		}
		outcome.oldest = nil
		e := m.fifo.Pop()
		m.start, a.Request = e.end, e.Request
		batch[n] = a
		n++
	}
	return n
}

// stall is the oldest command as checkAge saw it, to notice one that never gets
// as far as a write.
type stall struct {
	start uint64 // its first byte
	since clock.Instant
}

func (p *Pipeline) checkAge(now clock.Instant) {
	late, idle := p.examine(now)
	switch {
	case late && !p.t.Unread():
		// The loop may have taken from the socket meanwhile what lay there.
		if late, _ = p.examine(now); late {
			p.t.Close(request.ErrTimeout)
		}
	case idle:
		p.submit(Entry{Request: ping{}})
	}
}

// examine reports whether the connection is silent although commands are in flight (late),
// or whether nothing is in flight and nothing has arrived for a long time (idle).
//
// Silence counts, not the age of the oldest command: with many in flight the last one
// waits long if the server, or this process, is merely busy. Giving such a connection up
// would fail everything in flight and have most of it sent again, so a busy server would
// never catch up. Nor is it silence if the loop has not got round to writing (armed) or
// reading (transport.unread) yet, or is still handling what it read (draining). Some delays
// cannot be seen from here, such as an answer held by a reader that waits for a processor.
// To allow for them, now may lie in the past: see lagMeter in package resp.
func (p *Pipeline) examine(now clock.Instant) (late, idle bool) {
	m := &p.mu
	m.Lock()
	defer m.Unlock()
	if m.fifo.Len() == 0 {
		if now.Sub(m.lastRead) < idleAfter {
			return false, false
		}
		p.shrinkLocked()
		return false, true
	}
	since := p.stampLocked()
	if since == 0 {
		if m.armed || m.stall.since == 0 || m.stall.start != m.start {
			m.stall = stall{start: m.start, since: now}
		}
		since = m.stall.since
	}
	return !m.draining && now.Sub(max(since, m.lastRead)) > p.lane.cfg.CommandTimeout, false
}

// shrinkLocked is for an idle connection.
func (p *Pipeline) shrinkLocked() {
	m := &p.mu
	if m.writing {
		return
	}
	m.fifo.Shrink()
	m.backlog.Shrink()
	for m.flushes.Len() > 0 {
		m.flushes.Pop()
	}
	m.flushes.Shrink()
	if len(m.out) == 0 && cap(m.out) > keepCap {
		m.out = nil
	}
}

// ping asks whether an idle server is still there. Any answer will do for checkAge, which only
// looks for silence. What an error says of the connection is for Config.Redirect.
type ping struct{}

var pingBytes = wire.AppendCommand(nil, "PING")

func (ping) AppendCommand(dst []byte, _ request.ScriptForm) []byte { return append(dst, pingBytes...) }

func (ping) Complete(request.Reply) {}
