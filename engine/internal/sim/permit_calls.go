package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/sim/model"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
)

// adjust changes how many permits there are, takes one away by force, or asks for their number.
func (u *permitUser) adjust() {
	s, p, m := u.p.sim, u.p.engine().PermitSemaphore(permits), u.p.sim.server.Semaphore(permits)
	c, n, victim := u.p.begin(u.name), s.random.IntN(capacity+2), u.victim()
	switch s.random.IntN(5) {
	case 0:
		if m.All > capacity || m.All == capacity && s.chance(2) {
			n = -n
		}
		s.tell("%s adds %d permits", u.name, n)
		err := p.AddPermits(c.ctx, n)
		u.adjusted(c, fmt.Sprint(script.AddPermits, n, true), err)
	case 1:
		s.tell("%s gives a semaphore that is not there %d permits", u.name, n)
		done, err := p.TrySetPermits(c.ctx, n)
		u.adjusted(c, fmt.Sprint(script.TryPermits, n, done), err)
	case 2:
		s.tell("%s sets %d permits", u.name, n)
		err := p.SetPermits(c.ctx, n)
		u.answered(c, fmt.Sprint(script.SetPermits, n), err)
	case 3:
		u.p.sites[0].victims[victim] = true
		s.tell("%s gives permit %x back by force", u.name, victim)
		done, err := p.ForceRelease(c.ctx, fmt.Sprintf("%x", victim))
		u.adjusted(c, fmt.Sprintf("%x %v", victim, done), err)
	default:
		what := s.random.IntN(3)
		n, err := []func(context.Context) (int, error){p.Available, p.Acquired, p.Capacity}[what](c.ctx)
		u.answered(c, fmt.Sprint(what, n), err)
	}
	u.rest()
}

// nobodys is the id of no permit.
const nobodys = "that nobody took"

// victim is the id of a permit that somebody has, unless a release of it could be that of its owner.
func (u *permitUser) victim() string {
	s, mine := u.p.sim, u.p.engine().ID()
	ids, first := s.server.Semaphore(permits).IDs(), script.Owner{Engine: mine}.Permits()[0]
	if len(ids) == 0 {
		return nobodys
	}
	id := ids[s.random.IntN(len(ids))]
	alone := !slices.ContainsFunc(ids, func(other string) bool { return other != id && tenureOf(other) == tenureOf(id) })
	if alone && id[:7] == string(first[:7]) {
		return nobodys
	}
	return id
}

// notePermits notes what the server has done for the programs of an engine, and has said.
func (x *site) notePermits(words []string, reply []byte) {
	l, done := &x.permits, string(reply) == fmt.Sprintf(":%d\r\n", script.Done)
	switch model.BySHA[words[1]] {
	case script.PermitSet:
		if what, n := words[5], model.Number(words[6]); what == script.SetPermits {
			l.said[fmt.Sprint(what, n)] = x.sim.now
		} else {
			l.unreported[fmt.Sprint(what, n, done)]++
		}
	case script.PermitFree:
		if id := words[7]; len(words) == 8 && x.victims[id] {
			l.unreported[fmt.Sprintf("%x %v", id, done)]++
			if done {
				x.sim.robbed[tenureOf(id)] = x.sim.now
			}
		}
	case script.PermitCount:
		var available, held int64
		if _, err := fmt.Sscanf(string(reply), "*2\r\n:%d\r\n:%d\r\n", &available, &held); err != nil {
			panic("BUG: sim: no number of permits: " + err.Error())
		}
		for what, n := range []int64{available, held, available + held} {
			l.said[fmt.Sprint(what, n)] = x.sim.now
		}
	}
}

// adjusted checks what a program is told of what is sent once.
func (u *permitUser) adjusted(c *call, action string, err error) {
	s, l := u.p.sim, &u.p.sites[0].permits
	if !l.tell(action, err) {
		s.fail("%s is told of %q more often than the server has done it", u.name, action)
	}
	var refused *resp.ServerError
	if errors.As(err, &refused) && refused.Code == "ERR" && !errors.Is(err, engine.ErrOutcomeUnknown) { // which does not say what was done before it
		l.perhaps[operation(action)]++
	}
	u.ended(c, err)
}

// answered checks what a program is told of what is repeated until it is answered.
func (u *permitUser) answered(c *call, answer string, err error) {
	if err == nil && u.p.sites[0].permits.said[answer] < c.began {
		c.s.fail("%s: the server has not said %q", u.name, answer)
	}
	u.ended(c, err)
}

func (u *permitUser) ended(c *call, err error) {
	c.barred = c.s.barredSince(permits) < commandTimeout+settled
	c.end(err, commandTimeout)
	var refused *resp.ServerError
	switch {
	case err == nil, errors.As(err, &refused), errors.Is(err, errStopped), errors.Is(err, engine.ErrClosed):
	case errors.Is(err, engine.ErrUnavailable), errors.Is(err, engine.ErrOutcomeUnknown):
	default:
		c.s.fail("%s: a call of a semaphore says %v", u.name, err)
	}
}

// extend extends the leases of what it has.
func (u *permitUser) extend() {
	s, h, c := u.p.sim, u.have, u.p.begin(u.name)
	d := s.between(margin+time.Millisecond, 2*s.lease)
	s.tell("%s extends its permits by %v", u.name, d)
	err := h.Extend(c.ctx, d)
	s.tell("%s has extended its permits: %v", u.name, err)
	c.end(err, commandTimeout+s.ackTimeout())
	ended := h.Err()
	var refused *resp.ServerError
	switch {
	case err == nil && u.watchdog:
		s.fail("%s: Extend succeeded, and its permits have no lease of their own", u.name)
	case err == nil && ended == nil:
		until := c.began.Add(d)
		if valid := h.ValidUntil(); valid.Before(wallAt(until.Add(-margin))) {
			s.fail("%s: its permits were extended, and are valid for %v less", u.name, wallAt(until.Add(-margin)).Sub(valid))
		}
		m := s.server.Semaphore(permits)
		if !u.robbed() && slices.ContainsFunc(u.ids, func(id string) bool { return clock.Instant((m.Held[id]+1)*1e6) < until }) {
			s.fail("%s: its permits %x were extended by %v, and the server has them for less", u.name, u.ids, d)
		}
	case err == nil, errors.As(err, &refused), errors.Is(err, engine.ErrOutcomeUnknown):
	case errors.Is(err, engine.ErrInvalid):
		if !u.watchdog {
			s.fail("%s: its permits may be extended: %v", u.name, err)
		}
	case errors.Is(err, engine.ErrNotHeld), errors.Is(err, engine.ErrLost):
		if ended == nil {
			s.fail("%s: its permits are held still: %v", u.name, err)
		}
	case errors.Is(err, engine.ErrNotAcked) && u.acked:
	default:
		s.fail("%s: Extend says %v", u.name, err)
	}
}

// permitRivals has a client of another kind take permits, and give them back, or die; and somebody
// give back those of others.
func (s *Sim) permitRivals() {
	if s.calm {
		return
	}
	s.after(s.between(0, 20*time.Second), nil, s.permitRivals)
	m, now := s.server.Semaphore(permits), s.server.Milliseconds()
	if ids := m.IDs(); len(ids) > 0 && s.chance(2) {
		id := ids[s.random.IntN(len(ids))]
		s.tell("permit %x is given back by somebody else", id)
		s.robbed[tenureOf(id)] = s.now
		s.permitBack(id, !s.chance(4))
	}
	if s.chance(16) {
		s.deletePermits()
	}
	if m.Value <= 0 {
		return
	}
	s.rivalIDs++
	id := fmt.Sprintf("rival %10d", s.rivalIDs)
	s.tell("a rival has a permit")
	m.Value--
	m.Held[id] = now + int64(s.between(time.Millisecond, 10*time.Second)/time.Millisecond)
	if !s.chance(4) {
		s.after(s.between(0, 10*time.Second), nil, func() { s.permitBack(id, false) })
	}
}

// permitBack gives a permit back that is held, with a message or without.
func (s *Sim) permitBack(id string, silently bool) {
	m := s.server.Semaphore(permits)
	if m.Held[id] == 0 {
		return
	}
	delete(m.Held, id)
	if m.Value++; m.Value > 0 && !silently {
		s.published(s.keeps(s.server, permits), "redisson_sc:{"+permits+"}", s.verb())
	}
}

// deletePermits deletes the semaphore: nobody has any of it then, and there are none.
func (s *Sim) deletePermits() {
	s.tell("the semaphore of permits is deleted")
	m := s.server.Semaphore(permits)
	for id := range m.Held {
		s.robbed[tenureOf(id)] = s.now
	}
	m.Value, m.All, m.There, m.Held = 0, 0, false, make(map[string]int64)
}

// calmPermits lets nobody wait for ever.
func (s *Sim) calmPermits() {
	if m := s.server.Semaphore(permits); m.All < capacity {
		m.Value, m.All, m.There = m.Value+capacity-m.All, capacity, true
		s.published(s.keeps(s.server, permits), "redisson_sc:{"+permits+"}", s.verb())
	}
}
