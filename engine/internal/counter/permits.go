package counter

import (
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/waitq"
)

// Permits are what an acquire was granted, until they are given back.
type Permits struct {
	Port PermitsPort
	N    int64

	counter *Counter // nil: they are none, and nobody was asked
	place   waitq.Elem[*Permits]
	why     error // why they are not held any more
}

// Err is nil while they are held, and then why they are not.
func (p *Permits) Err() error { return p.why }

// Counter is that of their name.
func (p *Permits) Counter() *Counter { return p.counter }

// grant ends an acquire with permits.
func (op *Op) grant(rd *Ready) {
	t := op.counter
	p := op.port.Granted()
	p.counter, p.N, p.place.Value = t, op.N, p
	t.held.PushBack(&p.place)
	n := &t.Shard.Locks.Count
	n.Acquired++
	n.Held++
	op.end(op.N, nil, rd)
}

// Release gives the permits back, once. The verdict of that comes to the op, if that is admitted.
func (p *Permits) Release(op *Op, rd *Ready) error {
	switch {
	case p.why == lockerr.ErrReleased:
		return lockerr.ErrNotHeld
	case p.why != nil:
		return p.why
	}
	p.end(lockerr.ErrReleased)
	if p.counter == nil {
		return nil
	}
	p.counter.Shard.Locks.Count.Released++
	op.N = p.N
	p.counter.Admit(op, rd)
	return nil
}

// revoke gives them back because the engine is being closed.
func (p *Permits) revoke() {
	p.end(lockerr.ErrClosed)
	p.counter.Shard.Locks.Count.Lost[lock.EngineClosed]++
	p.counter.giveBack(p.N)
}

func (p *Permits) end(why error) {
	p.why = why
	if p.counter != nil {
		p.counter.held.Remove(&p.place)
		p.counter.Shard.Locks.Count.Held--
	}
	p.Port.Ended()
}

// giveBack releases permits that nobody has.
func (t *Counter) giveBack(n int64) { t.calls.PushBack(&t.newOp(Release, n).place) }

// newOp makes an op of nobody.
func (t *Counter) newOp(what OpKind, n int64) *Op {
	op := new(Op)
	op.Init(nil, what, n)
	op.counter, op.since = t, t.sent
	return op
}
