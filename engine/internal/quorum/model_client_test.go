package quorum

import (
	"errors"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/clock"
)

// client wants the lock again and again. Several may be of one process.
type client struct {
	*world
	id, process int
	waits       bool // it makes no TryLock
	m           *Machine
	sections    int
	verdicts    int // how often it was told
}

// The methods below implement Port.

func (c *client) Now() clock.Instant                 { return c.now }
func (c *client) Stamp(int) clock.Instant            { return c.now }
func (c *client) Away(int) error                     { return nil }
func (c *client) Draw(d time.Duration) time.Duration { return time.Duration(c.r.Int64N(int64(d))) }
func (c *client) NotAcquired(f Failure) error        { return &failureError{f} }
func (c *client) Lost(l Loss) error                  { return &lossError{l} }
func (c *client) NewTry(i int, waits bool) Try {
	return &attempt{c: c, m: c.m, server: c.servers[i], waits: waits}
}
func (c *client) RoundTrip(i int) time.Duration { return c.servers[i].trips[c.process] }
func (c *client) SetRoundTrip(i int, d time.Duration) {
	if c.servers[i].trips == nil {
		c.servers[i].trips = make(map[int]time.Duration)
	}
	c.servers[i].trips[c.process] = d
}

// want begins an acquisition: a Lock, a TryLock, a Lock that is given up, or one with a fixed lease.
func (c *client) want() {
	if c.stopping {
		c.m = nil
		return
	}
	cfg := Config{Renewal: c.lease / 3}
	for i := range c.servers {
		cfg.Order = append(cfg.Order, i)
	}
	if !c.waits {
		cfg.Once = c.r.IntN(8) == 0
	}
	if c.r.IntN(8) == 0 {
		cfg.Renewal = 0
	}
	m := new(Machine)
	c.m, c.verdicts = m, 0
	m.Init(c, len(c.servers), cfg)
	c.does(func(do *Ready) { m.Begin(do) })
	if c.r.IntN(6) == 0 && !c.quiet {
		c.in(c.between(0, time.Second), func() {
			c.of(m, func(do *Ready) { m.Cancel(lockerr.Cancel{Cause: lockerr.ErrWaited, TimedOut: true}, do) })
		})
	}
}

func (c *client) does(transition func(do *Ready)) { c.of(c.m, transition) }

// of makes a transition of a machine of this client, perhaps an earlier one, and does what is to be
// done.
func (c *client) of(m *Machine, transition func(do *Ready)) {
	held := m.Stage == Holding
	var do Ready
	transition(&do)
	c.invariants(m)
	for _, v := range do.Give {
		v.Port.(*grant).release(nil)
	}
	for _, a := range do.Cancel {
		a.(*attempt).cancel()
	}
	if do.Won || do.Failed != nil {
		c.settled(m, &do)
	} else if held && m.Stage == Over && m == c.m && m.Ending != lockerr.ErrReleased {
		c.says("client %d has lost it: %+v", c.id, m.Ending)
		c.later()
	}
	if do.Join != nil && do.Last != 0 {
		g := do.Join.Port.(*grant)
		g.until = min(g.until, do.Last)
		c.in(max(0, g.until.Sub(c.now)), g.expire)
	}
	for _, v := range do.LookAt {
		v.Port.(*grant).renew(false)
	}
	for _, one := range do.Ask {
		if a := one.Try.(*attempt); m.Stopped() != nil {
			a.cancel()
		} else {
			a.begin()
		}
	}
	if do.Timer && m.Due != 0 {
		c.in(max(0, m.Due.Sub(c.now)), func() { c.of(m, m.Tick) })
	}
}

func (c *client) invariants(m *Machine) {
	out, votes := 0, len(m.Votes())
	for i := range m.Members {
		if m.Members[i].Asked != nil {
			out++
		}
	}
	if m.Stage == Over && votes > 0 || m.Stage == Waiting && m.stop == nil && votes > 0 ||
		!m.Decided() && out == 0 && (m.stop != nil || m.Due == 0) {
		c.fail("client %d: stage %d, %d are out, %d votes, due %v", c.id, m.Stage, out, votes, m.Due)
	}
}

// settled: it has a verdict. What it has it releases after a while.
func (c *client) settled(m *Machine, do *Ready) {
	if c.verdicts++; c.verdicts > 1 || m != c.m {
		c.fail("client %d is told %d times", c.id, c.verdicts)
	}
	if do.Failed != nil {
		c.says("client %d: not acquired: %+v", c.id, do.Failed)
		c.later()
		return
	}
	c.says("client %d holds it: %d votes", c.id, len(m.Votes()))
	c.sections++
	d := c.between(0, 20*time.Millisecond)
	if c.r.IntN(20) == 0 && !c.short {
		d = c.between(0, 2*c.lease)
	}
	c.in(d, func() {
		if m.Stage == Holding {
			c.unlock(m)
		}
	})
}

// unlock ends all here, and then releases it at the servers.
func (c *client) unlock(m *Machine) {
	if certain, expired := m.Check(); !certain {
		var ends []End
		for _, v := range expired {
			ends = append(ends, endOf(v.Member, errors.New("its time is over"), lock.NotRenewed))
		}
		m.Expired(ends)
	}
	var votes []*Vote
	lost := m.Ending != nil
	c.of(m, func(do *Ready) { votes, _ = m.Release(do) })
	c.says("client %d unlocks: %d votes", c.id, len(votes))
	for _, v := range votes {
		v.Port.(*grant).release(nil)
	}
	if !lost {
		c.later()
	}
}

func (c *client) later() {
	c.in(c.between(0, 50*time.Millisecond), c.want)
}

// notified has an answer for the machine that has asked.
func (c *client) notified(a *attempt, g *grant, r Refusal) {
	m := a.m
	var v *Vote
	if g != nil {
		v = &g.Vote
		g.live()
	}
	c.of(m, func(do *Ready) { m.Reply(a.server.id, v, r, do) })
}
