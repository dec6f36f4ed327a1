package resp

// Rank says what a connection does with a request while it is full: while as many
// commands wait for an answer, or as many bytes for the kernel, as the limits allow. On a
// durable connection it is full while as many wait for their group.
type Rank uint8

const (
	// Refuse fails the request with ErrLaneFull.
	Refuse Rank = iota
	// Later lets it wait for room, first come, first served.
	Later
	// Sooner lets it wait, too, in front of all that have the rank Later: it is for
	// commands that end what others have begun.
	Sooner
)

// PatientRequest is a Request that may wait for room on a full connection. A Request
// without these methods has the rank Refuse.
type PatientRequest interface {
	Request
	// Rank does not change between Submit and Complete. It may be called under the lane's
	// lock.
	Rank() Rank
	// Wanted reports whether anybody waits for the request still. It is asked when
	// there is room, without a lock of this package; if not, Complete follows with
	// ErrUnwanted, and nothing is sent.
	Wanted() bool
}

func rankOf(r Request) Rank {
	if p, ok := r.(PatientRequest); ok {
		return p.Rank()
	}
	return Refuse
}

// backlog holds what waits for room on one connection, or for the next group of a durable
// one, in the order in which it is let in.
type backlog[T any] struct{ sooner, later ring[T] }

func (b *backlog[T]) len() int { return b.sooner.len() + b.later.len() }

func (b *backlog[T]) push(e T, rank Rank) {
	if rank == Sooner {
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
		if w, ok := e.request.(PatientRequest); ok && !w.Wanted() {
			p.lane.refuse(e, errRefusedUnwanted)
			continue
		}
		e.admitted = true
		p.submit(e)
	}
}
