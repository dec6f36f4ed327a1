package resp

import "github.com/pawl-lock/pawl/resp/internal/exchange"

// backlog holds what waits for room on one connection, or for the next group of a durable
// one, in the order in which it is let in.
type backlog[T any] struct{ sooner, later ring[T] }

func (b *backlog[T]) len() int { return b.sooner.len() + b.later.len() }

func (b *backlog[T]) push(e T, rank exchange.Rank) {
	if rank == exchange.Sooner {
		b.sooner.push(e)
	} else {
		b.later.push(e)
	}
}

func (b *backlog[T]) pop() T {
	if b.sooner.len() > 0 {
		return b.sooner.pop()
	}
	return b.later.pop()
}

func (b *backlog[T]) shrink() {
	b.sooner.shrink()
	b.later.shrink()
}

// admit lets in what has waited for room, as far as there is some. It runs on the
// loop, after replies were completed; drain writes what it appends.
func (p *pipeline) admit() {
	m := &p.mu
	for {
		m.Lock()
		if m.dead || m.backlog.len() == 0 || p.fullLocked() {
			m.Unlock()
			return
		}
		e := m.backlog.pop()
		m.Unlock()
		if w, ok := e.request.(exchange.PatientRequest); ok && !w.Wanted() {
			p.lane.refuse(e, exchange.RefusedUnwanted)
			continue
		}
		e.admitted = true
		p.submit(e)
	}
}
