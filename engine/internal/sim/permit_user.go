package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
)

// The semaphore of those worlds that have one: its name, and how many permits it has.
const (
	permits  = "permits"
	capacity = 3
)

// permitUser is a program that takes permits, again and again.
type permitUser struct {
	p        *process
	name     string
	waits    int64 // for so many permits, with Acquire; 0: it does not
	asks     bool  // it waits for the answer
	have     *engine.Hold
	ids      []string // of what it has, as they stand on the server
	watchdog bool
	acked    bool          // a replica must have it
	most     time.Duration // its MaxHold
	ctx      context.Context
	contexts []context.Context
	last     clock.Instant // when it was last known to be believed
	until    time.Time     // what it was sure of when Unlock was called
	// shaken: a failover may have cost it, and nobody has told it.
	shaken bool
}

// beginPermits gives the world a semaphore.
func (s *Sim) beginPermits() {
	s.semaphore = true
	m := s.server.Semaphore(permits)
	m.Value, m.All, m.There = capacity, capacity, true
	s.server.replicate()
	if c := s.cluster; c != nil {
		c.slots[resp.SlotOf(permits)] = &slot{name: permits, at: c.nodes[0]}
	}
	s.after(0, nil, s.permitRivals)
}

func (s *Sim) newPermitUser(p *process, i int) {
	u := &permitUser{p: p, name: fmt.Sprintf("%s.permits.%d", p.name, i+1)}
	s.permitUsers = append(s.permitUsers, u)
	u.rest()
}

func (u *permitUser) rest() {
	s := u.p.sim
	s.after(s.between(0, 3*time.Second), u.p, func() {
		if !s.calm && !u.p.left {
			u.ask()
		}
	})
}

// ask takes permits, or does something else. It waits for the verdict, or abandons the future before.
func (u *permitUser) ask() {
	s, m := u.p.sim, u.p.engine().PermitSemaphore(permits)
	if s.chance(4) {
		s.start(u.p, u.adjust)
		return
	}
	n, try := 1+s.random.IntN(2), s.chance(3)
	options := u.options()
	if !try && s.chance(3) {
		options = append(options, engine.Wait(s.between(0, 2*s.lease)))
	}
	s.tell("%s asks for %d, try %v, %v", u.name, n, try, options)
	if u.asks = true; !try {
		u.waits = int64(n)
	}
	answered, abandoned := false, false
	if u.ctx = context.Background(); s.chance(8) {
		limit := s.between(time.Millisecond, s.lease)
		u.ctx = u.p.limit(limit)
		s.after(limit+settled, u.p, func() {
			if !answered && u.p.awake() {
				s.fail("%s waits still, and its context has ended", u.name)
			}
		})
	}
	verdict := func(h *engine.Hold, err error) {
		answered, u.asks, u.waits = true, false, 0
		switch {
		case err != nil:
			u.refused(err)
		case abandoned:
			if h.Err() == nil {
				s.fail("%s: permits that were abandoned are held still", u.name)
			}
			u.rest()
		default:
			u.granted(h, n)
		}
	}
	if s.chance(3) {
		s.start(u.p, func() {
			if try {
				verdict(m.TryAcquire(u.ctx, n, options...))
			} else {
				verdict(m.Acquire(u.ctx, n, options...))
			}
		})
		return
	}
	var f *engine.Future[*engine.Hold]
	if try {
		f = m.TryAcquireAsync(u.ctx, n, options...)
	} else {
		f = m.AcquireAsync(u.ctx, n, options...)
	}
	f.OnComplete(verdict)
	if s.chance(10) {
		s.after(s.between(0, s.lease), u.p, func() {
			if !answered {
				s.tell("%s abandons", u.name)
				abandoned = true
				f.Abandon()
			}
		})
	}
}

// options are those of an Acquire, but for how long it waits.
func (u *permitUser) options() (options []engine.Option) {
	s := u.p.sim
	u.watchdog, u.acked, u.most = !s.chance(4), s.chance(8), 0
	switch {
	case !u.watchdog:
		options = append(options, engine.Lease(s.between(margin+time.Millisecond, 2*s.lease)))
	case s.chance(4):
		u.most = s.between(margin+time.Millisecond, 2*s.lease)
		options = append(options, engine.MaxHold(u.most))
	}
	if u.acked {
		options = append(options, engine.Acked(1))
	}
	return options
}

func (u *permitUser) refused(err error) {
	s := u.p.sim
	s.tell("%s gets no permits: %v", u.name, err)
	s.checkGaveUp(u.name, err)
	if !errors.Is(err, engine.ErrNotAcquired) || errors.Is(err, errStopped) && u.ctx.Err() == nil {
		s.fail("%s: the error of an acquisition is %v", u.name, err)
	}
	u.rest()
}

func (u *permitUser) granted(h *engine.Hold, n int) {
	s := u.p.sim
	u.have, u.ids, u.contexts, u.last, u.shaken = h, nil, nil, s.now, s.now < u.p.granted // see failoverPermits
	for _, id := range h.PermitIDs() {
		u.ids = append(u.ids, rawID(id))
	}
	s.tell("%s has %d, until %v", u.name, n, h.ValidUntil().Sub(u.p.wall()))
	if len(u.ids) != n {
		s.fail("%s asked for %d permits, and has %d", u.name, n, len(u.ids))
	}
	if u.most != 0 && h.ValidUntil().Sub(u.p.wall()) > u.most {
		s.fail("%s: its permits are valid for longer than MaxHold", u.name)
	}
	if s.chance(3) {
		u.contexts = append(u.contexts, h.Context(s.ctx))
	}
	if !u.watchdog || s.chance(8) {
		s.after(s.between(0, s.lease), u.p, func() {
			if u.have == h {
				s.start(u.p, u.extend)
			}
		})
	}
	s.kept = append(s.kept, &held{hold: h})
	s.check()
	if u.acked && u.believed() && h.Acked() < 1 {
		s.fail("%s: no replica has acknowledged its permits", u.name)
	}
	s.after(s.holdFor(), u.p, u.release)
}

func (u *permitUser) release() {
	s, h := u.p.sim, u.have
	s.tell("%s gives back", u.name)
	lostBefore := h.Err() != nil
	u.until = h.ValidUntil()
	u.asks = true
	h.UnlockAsync().OnComplete(func(_ struct{}, err error) {
		s.tell("%s has given back: %v", u.name, err)
		u.asks = false
		there := slices.ContainsFunc(u.ids, func(id string) bool { return s.server.Semaphore(permits).Held[id] != 0 })
		switch {
		case err == nil && lostBefore:
			s.fail("%s: Unlock succeeded, though the hold was lost before", u.name)
		case err == nil && there && !u.shaken:
			s.fail("%s: Unlock succeeded, and the server has it still", u.name)
		case err == nil, errors.Is(err, engine.ErrOutcomeUnknown):
		case errors.Is(err, engine.ErrLost):
			if !lostBefore && !u.robbed() && !u.p.wall().After(u.until) {
				s.fail("%s: Unlock says %v, and nobody took it", u.name, err)
			}
		default:
			s.fail("%s: Unlock says %v", u.name, err)
		}
		u.have = nil
		u.rest()
	})
}

func (u *permitUser) believed() bool {
	return u.have != nil && !u.p.dead && u.have.ValidUntil().After(u.p.wall())
}

// robbed reports whether others have removed one of its permits.
func (u *permitUser) robbed() bool { return u.shaken || u.p.sim.robbed[tenureOf(u.ids[0])] != 0 }

// tenureOf is the first id of those that were taken together.
func tenureOf(id string) string { return id[:7] + "\x00" + id[8:] }

func rawID(id string) string {
	var raw []byte
	if _, err := fmt.Sscanf(id, "%x", &raw); err != nil {
		panic("BUG: no id: " + id)
	}
	return string(raw)
}

// checkPermits holds the semaphore against the promises.
func (s *Sim) checkPermits() {
	m, now := s.server.Semaphore(permits), s.server.Milliseconds()
	// 1. No permit is lost, and none is made.
	if m.Value+int64(len(m.Held)) != m.All {
		s.fail("a semaphore of %d has %d to be had, and %d that are held", m.All, m.Value, len(m.Held))
	}
	owned := make(map[string]bool)
	for _, u := range s.permitUsers {
		if u.have == nil || u.p.dead {
			continue
		}
		for _, id := range u.ids {
			owned[id] = true
		}
		if u.believed() {
			u.last = s.now
		}
		if u.robbed() {
			continue
		}
		there := !slices.ContainsFunc(u.ids, func(id string) bool { return m.Held[id] < now })
		// 2. Nobody believes to have what the server may give away, nor is a context alive then.
		if u.believed() && !there {
			s.fail("%s believes to have %q, and the server has %v at %d", u.name, u.ids, m.Held, now)
		}
		if !there && u.p.awake() && slices.ContainsFunc(u.contexts, func(ctx context.Context) bool { return ctx.Err() == nil }) {
			s.fail("%s: a context is alive, and the server has %v", u.name, m.Held)
		}
	}
	if !s.healthy() {
		clear(s.strayPermits)
		s.unused, s.offered = 0, 0
		return
	}
	// 3. Permits do not stay unused while a process waits for no more than that.
	switch {
	case !s.enough(m.Value) || s.barred(permits):
		s.unused, s.offered = 0, 0
	case s.unused == 0:
		s.unused = s.now
	case s.offered != 0 && s.now.Sub(s.offered) > settled:
		s.fail("%d permits are to be had, somebody waits for them, and was told so %v ago", m.Value, s.now.Sub(s.offered))
	case s.now.Sub(s.unused) > permitsIdle:
		s.fail("%d permits are to be had for %v, and somebody waits for them", m.Value, s.now.Sub(s.unused))
	}
	if s.unused != 0 && s.offered == 0 && s.heard[permits] == s.now {
		s.offered = s.now
	}
	// 4. The server has none for long that nobody has.
	for _, id := range m.IDs() {
		if owned[id] || m.Held[id] <= now || s.denied[tenureOf(id)] != 0 || s.ghosts[tenureOf(id)] || !s.isOurs(id) || s.barred(permits) {
			delete(s.strayPermits, id)
		} else if since, was := s.strayPermits[id]; !was {
			s.strayPermits[id] = s.now
		} else if s.now.Sub(since) > settled {
			s.fail("the server has permit %x for %v, and nobody else does", id, s.now.Sub(since))
		}
	}
	for _, u := range s.permitUsers {
		if u.have == nil || u.p.dead {
			continue
		}
		// 5. The end is told in time.
		over := min(s.now.Sub(u.last), u.p.wall().Sub(u.have.ValidUntil()))
		select {
		case <-u.have.Done():
			over = 0
		default:
		}
		if over > settled {
			s.fail("%s: its time is over for %v, and Done says nothing", u.name, over)
		}
		// 6. What others have removed is told at the next renewal.
		if at := s.robbed[tenureOf(u.ids[0])]; at != 0 && u.watchdog && u.believed() && s.now.Sub(max(at, s.quiet)) > recovers+s.lease*2/5 {
			s.fail("%s: it was taken away %v ago, and does not know", u.name, s.now.Sub(at))
		}
	}
}

// enough reports whether so many permits are what a process waits for, each of it that waits.
func (s *Sim) enough(n int64) bool {
	most := make(map[*process]int64)
	for _, u := range s.permitUsers {
		if u.waits > 0 && !u.p.dead && !u.p.left {
			most[u.p] = max(most[u.p], u.waits)
		}
	}
	for _, wanted := range most {
		if wanted <= n {
			return true
		}
	}
	return false
}

// permitsIdle is how long it may take until permits are taken that somebody waits for: nobody may
// have been told of them, and then a waiter looks.
const permitsIdle = 10*time.Second + wakeUp

// isOurs reports whether a permit is of an engine that lives.
func (s *Sim) isOurs(id string) bool {
	for _, p := range s.processes {
		first := script.Owner{Engine: p.engine().ID()}.Permits()[0]
		if !p.dead && !p.sites[0].closed && id[:7] == string(first[:7]) {
			return true
		}
	}
	return false
}

// failoverPermits notes what a failover may have changed: holds that the replica did not have, and
// ids that it had still.
func (s *Sim) failoverPermits() {
	for _, p := range s.processes {
		p.granted = s.now.Add(5 * time.Second) // what is granted by then may have been before
	}
	for _, u := range s.permitUsers {
		u.shaken = u.shaken || !u.acked || !u.believed() // else the replica has it
	}
	for id := range s.server.Semaphore(permits).Held {
		t := tenureOf(id)
		s.ghosts[t] = true
		if _, was := s.robbed[t]; was { // others have removed it, and now it is back
			s.denied[t] = s.now
			if !slices.ContainsFunc(s.permitUsers, func(u *permitUser) bool { return u.lacks(t) }) {
				delete(s.robbed, t)
			}
		}
	}
}

// lacks reports whether it has that grant, and the server does not have all permits of it.
func (u *permitUser) lacks(tenure string) bool {
	m := u.p.sim.server.Semaphore(permits)
	return u.have != nil && tenureOf(u.ids[0]) == tenure && slices.ContainsFunc(u.ids, func(id string) bool { return m.Held[id] == 0 })
}

// restPermits checks that nobody waits in a world in which nothing happens any more.
func (s *Sim) restPermits() {
	for _, u := range s.permitUsers {
		if u.asks && !u.p.dead {
			s.fail("at rest %s waits still", u.name)
		}
	}
	for _, p := range s.processes {
		if l := p.sites[0].permits; !p.dead && l.excess() > 0 {
			s.fail("at rest the server has executed more for %s than its programs know of: %v, and perhaps %v", p.name, l.unreported, l.perhaps)
		}
	}
}
