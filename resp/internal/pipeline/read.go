package pipeline

import (
	"fmt"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/invariants"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/wire"
)

// replyReader cuts the byte stream into replies. It belongs to the loop.
type replyReader struct {
	decoder wire.Decoder
	partial []byte // the beginning of an unfinished reply
	batch   [batchSize]Answer
	behind  bool // somebody waits in the backlog
}

// Answer is a reply that has found its request.
type Answer struct {
	value   wire.Value
	Request request.Request // nil: the command goes out again, nothing to complete
	Sent    clock.Instant
	err     error // no reply came: why
	Hops    uint8 // as in entry
	asked   bool
}

// OnBytes completes the commands that b answers, then writes what has been
// queued meanwhile, by their Complete methods among others.
func (p *Pipeline) OnBytes(b []byte) {
	now := p.lane.cfg.Clock.Now()
	got := len(b)
	if err := p.read(b, now); err != nil {
		p.t.Close(err)
	}
	p.drain(now, got, false)
}

// read decodes and dispatches. After an error the stream cannot be trusted any more.
func (p *Pipeline) read(b []byte, now clock.Instant) error {
	r := &p.reader
	if len(r.partial) > 0 {
		r.partial = append(r.partial, b...)
		b = r.partial
	}
	for {
		n, used, err := r.decode(b)
		if n > 0 {
			if !p.match(r.batch[:n]) {
				return fmt.Errorf("%w: the server sent a reply that no command asked for", wire.ErrProtocol)
			}
			p.complete(r.batch[:n], now)
			if r.behind {
				p.admit()
			}
		}
		invariants.Poison(b[:used])
		b = b[used:]
		if err != nil {
			return err
		}
		if n < batchSize {
			r.keep(b)
			return nil
		}
		p.drain(now, 0, true) // more to come: the server need not wait for it
	}
}

// decode fills batch with the values at the start of b, which they borrow.
func (r *replyReader) decode(b []byte) (n, used int, err error) {
	for n < batchSize {
		v, size, err := r.decoder.Decode(b[used:])
		if size == 0 || err != nil {
			return n, used, err
		}
		r.batch[n].value = v
		used += size
		n++
	}
	return n, used, nil
}

// keep copies the beginning of an unfinished reply out of the borrowed bytes. b
// may be the end of partial itself.
func (r *replyReader) keep(b []byte) {
	if len(b) == 0 && cap(r.partial) > keepCap {
		r.partial = nil
		return
	}
	r.partial = append(r.partial[:0], b...)
}

// match takes one entry off the FIFO for each reply. A script that the server does not know, or
// not by its name, is queued again, with its text. False means that there are more replies than commands
// written. Then nobody gets a reply of this batch: one that is too many may have shifted
// all that follow it.
func (p *Pipeline) match(batch []Answer) bool {
	m := &p.mu
	m.Lock()
	defer m.Unlock()
	m.draining = true
	p.reader.behind = m.backlog.Len() > 0
	if n := len(batch); n > m.fifo.Len() || m.fifo.At(n-1).end > m.offered {
		return false
	}
	for i := range batch {
		a := &batch[i]
		a.Sent = p.stampLocked()
		e := m.fifo.Pop()
		m.start = e.end
		if a.value.Kind == wire.KindError && p.resendLocked(e, a.value) {
			continue
		}
		a.Request, a.Hops, a.asked = e.Request, e.Hops, e.Asked
	}
	return true
}

// stampLocked returns the stamp of the oldest command, zero if none of it has
// been offered to a write. fifo must not be empty.
func (p *Pipeline) stampLocked() clock.Instant {
	m := &p.mu
	for m.flushes.Len() > 0 && m.flushes.Front().end <= m.start {
		m.flushes.Pop()
	}
	if m.flushes.Len() == 0 || m.start >= m.offered {
		return 0
	}
	return m.flushes.Front().at
}

// complete delivers the batch and clears it. A panic of a Complete costs the
// connection; the rest is still delivered.
func (p *Pipeline) complete(batch []Answer, now clock.Instant) {
	for len(batch) > 0 {
		batch = batch[p.completeSome(batch, now):]
	}
}

// completeSome returns how many answers it has delivered; fewer than all if the last of
// them panicked.
func (p *Pipeline) completeSome(batch []Answer, now clock.Instant) (n int) {
	defer p.recoverComplete()
	for n < len(batch) {
		a := batch[n]
		batch[n] = Answer{}
		n++
		if a.Request == nil {
			continue
		}
		reply := request.Reply{Value: a.value, Err: a.err, Sent: a.Sent, Now: now, Moving: a.asked}
		if a.value.Kind == wire.KindError {
			e := wire.NewServerError(a.value.Bytes)
			if redirect := p.lane.cfg.Redirect; redirect != nil && redirect(a, e) {
				continue
			}
			reply.Value, reply.Err, reply.Moving = wire.Value{}, e, a.moving(e)
		}
		a.Request.Complete(reply)
	}
	return n
}

// recoverComplete is deferred around calls of Complete.
func (p *Pipeline) recoverComplete() {
	if v := recover(); v != nil {
		p.t.Close(fmt.Errorf("resp: BUG: panic in Complete: %v", v))
	}
}

// moving reports whether the answer shows that the slot is being migrated.
func (a Answer) moving(e *wire.ServerError) bool {
	return a.asked || e != nil && request.RefusalOf(e).Apart()
}
