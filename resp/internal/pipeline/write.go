package pipeline

import (
	"fmt"
	"sort"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/wire"
)

const (
	// maxRounds is how many times in a row one goroutine writes what others have
	// appended meanwhile. Then it passes the work on to the loop, so that no caller
	// ends up writing for everybody.
	maxRounds = 4

	// maxHandOver is how much OnWake gives to one write, rounded up to the end of a
	// command. What lies in gnet's buffer counts as sent, although the kernel has not
	// seen it; this limits how many commands are in doubt only for that reason. The last
	// command is whole, so a reply comes once the buffer is empty.
	maxHandOver = 64 << 10
)

// flushLocked writes what is queued. The caller has made itself the writer; it is
// no longer when flushLocked returns. mu is held at the call and not after it.
// wakened says that the caller is OnWake.
func (p *Pipeline) flushLocked(wakened bool) {
	m := &p.mu
	for round := 0; ; round++ {
		b := m.out[m.off:]
		if len(b) == 0 || m.dead {
			m.writing = false
			m.Unlock()
			return
		}
		if round == maxRounds {
			p.wakeLocked()
			return
		}
		if wakened && len(b) > maxHandOver {
			b = b[:p.boundaryLocked(maxHandOver)]
		}
		m.offered = p.takenLocked() + uint64(len(b))
		m.flushes.Push(flush{end: m.offered, at: p.lane.cfg.Clock.Stamp()})
		m.Unlock()

		var n int
		var err error
		if wakened {
			n, err = p.t.Write(b)
		} else {
			n, err = p.t.TryWrite(b)
		}

		m.Lock()
		if m.dead {
			continue
		}
		// After an error the transport may have taken more than it says, and its final
		// count decides what is unknown: that needs the stamp of this write.
		if early := p.tookLocked(n, n == len(b) || err != nil); early != nil {
			err = early
		}
		switch {
		case err != nil:
			// Later requests queue up behind and are completed as not sent in
			// OnClose, which follows.
			m.writing = false
			m.Unlock()
			p.t.Close(err)
			return
		case n == len(b):
		case wakened:
			m.writing = false
			m.Unlock()
			return
		default:
			p.wakeLocked()
			return
		}
	}
}

// wakeLocked passes the work of the writer on to OnWake, and unlocks.
func (p *Pipeline) wakeLocked() {
	m := &p.mu
	m.writing = false
	wake := !m.armed
	m.armed = true
	m.Unlock()
	if wake {
		p.t.Wake()
	}
}

// takenLocked is the number of bytes that writes have taken so far.
func (p *Pipeline) takenLocked() uint64 {
	m := &p.mu
	return m.appended - uint64(len(m.out)-m.off)
}

// boundaryLocked returns the length of the shortest run of whole commands at the
// front of what is queued that has at least size bytes.
func (p *Pipeline) boundaryLocked(size int) int {
	m := &p.mu
	taken := p.takenLocked()
	i := sort.Search(m.fifo.Len(), func(i int) bool { return m.fifo.At(i).end >= taken+uint64(size) })
	return int(m.fifo.At(i).end - taken)
}

// errEarly: during a write a reply came to a command that the kernel had not taken yet.
var errEarly = fmt.Errorf("%w: the server answered a command before it can have received it", wire.ErrProtocol)

// tookLocked accounts for a write that took n bytes; whole: all it was given, or it
// may have been.
func (p *Pipeline) tookLocked(n int, whole bool) error {
	m := &p.mu
	m.off += n
	if !whole {
		m.offered = p.takenLocked()
		if m.start > m.offered {
			return errEarly
		}
		// The commands that begin in the rest get the stamp of a later write. The
		// flush is still there: no command beyond what was taken has a reply.
		if n == 0 {
			m.flushes.Unpush()
		} else {
			m.flushes.Back().end = m.offered
		}
	}
	switch {
	case m.off == len(m.out):
		m.out, m.off = m.out[:0], 0
	case m.off >= keepCap:
		// Under steady load out may never be empty, and would grow for ever without
		// this. Only what was appended during one write has to move.
		m.out, m.off = m.out[:copy(m.out, m.out[m.off:])], 0
	}
	return nil
}

// OnWake writes what is queued, on the loop (gnet) or on the writer goroutine
// (std).
func (p *Pipeline) OnWake() {
	m := &p.mu
	m.Lock()
	m.armed = false
	if m.writing {
		m.Unlock() // it looks again before it leaves
		return
	}
	m.writing = true
	p.flushLocked(true)
}

// drain writes what was queued while replies were completed, mostly on the loop: with gnet
// that is one write for all of it. got is how many bytes had arrived; more says that OnBytes
// goes on and will drain again.
func (p *Pipeline) drain(now clock.Instant, got int, more bool) {
	m := &p.mu
	m.Lock()
	m.draining = more
	m.lastRead = now
	m.bytesIn += uint64(got)
	if err := m.leaving; err != nil && !more && m.fifo.Len() == 0 {
		m.Unlock()
		p.t.Close(err)
		return
	}
	if m.writing {
		m.Unlock()
		return
	}
	m.writing = true
	p.flushLocked(false)
}
