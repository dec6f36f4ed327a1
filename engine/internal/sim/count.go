package sim

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/counter"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/sim/model"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
)

// The semaphore and the latch of those worlds that have them.
const (
	tallied = "sem"
	latch   = "latch"
	supply  = 4 // that the semaphore has in the beginning
	most    = 3 // that anybody asks for
)

// counts is what becomes of the semaphore and the latch, by the server's own record. Nobody has
// more permits than it has taken, and in the end nobody has taken any.
type counts struct {
	all   int64               // permits that there are, with those that are held
	of    map[string]*counted // by the id of an engine
	rival int64               // permits that a client of another kind has
	users []*expectedCount
	looks map[string]clock.Instant   // answers to those who looked, and when they were given last
	asked uint64                     // how often any of them has
	more  map[*process]clock.Instant // since when there are enough permits for the first who waits
	open  clock.Instant              // since when the latch is; 0: it is not
	was   clock.Instant              // when the latch was open last
}

// counted is what the server has executed for an engine, and what its programs know of.
type counted struct {
	taken  int64 // permits, by the server
	unsure bool  // a command was given up, or denied: what became of it is not known
	ledger
	out     map[string]clock.Instant
	doubted map[string]bool // those of out whose answer was lost
}

func (s *Sim) of(x *site) *counted {
	c := s.counts.of[x.engine.ID()]
	if c == nil {
		c = &counted{ledger: newLedger(), out: make(map[string]clock.Instant), doubted: make(map[string]bool)}
		s.counts.of[x.engine.ID()] = c
	}
	return c
}

// beginCounts gives the world a semaphore and a latch.
func (s *Sim) beginCounts() {
	s.counts = &counts{all: supply, of: make(map[string]*counted), looks: make(map[string]clock.Instant), more: make(map[*process]clock.Instant)}
	s.server.Keys[tallied] = &model.Hash{Text: true, Value: "4"}
	for _, v := range s.nodesOf(s.server) {
		v.Counted = s.noteCounted
	}
	if c := s.cluster; c != nil {
		for i, name := range []string{tallied, latch} {
			c.slots[resp.SlotOf(name)] = &slot{name: name, at: c.nodes[i%len(c.nodes)]}
		}
	}
	s.after(s.between(0, 3*time.Second), nil, s.countRivals)
}

// noteCounted is told of each command that a server executes for the first time.
func (s *Sim) noteCounted(key, mark string, ops, answers []string) {
	_, id, _ := strings.Cut(mark, ":pawl:")
	id, _, _ = strings.Cut(strings.TrimPrefix(id, ":"), ":")
	c := s.counts.of[id]
	for i, op := range ops {
		n, answer := model.Number(op[1:]), model.Number(answers[i])
		switch op[0] {
		case 'a', 't':
			c.taken += n * max(answer, 0)
			continue
		case 'r':
			c.taken -= n
			continue
		case 'v':
			s.counts.looks[key+" "+answers[i]] = s.now
			continue
		case 'p':
			s.counts.all += n
		case 's':
			s.counts.all += n * answer
		case 'd':
			s.counts.all -= answer
		}
		c.unreported[op+" "+answers[i]]++
	}
}

// numbered is the mark and the number of a command on a count; none if it only looks.
func (s *Sim) numbered(f *flight) (key string, ok bool) {
	words := model.Words(f.command)
	if s.counts == nil || words[1] != script.Counter.SHA || words[2] == "1" {
		return "", false
	}
	return words[4] + " " + words[5], true
}

// noteAsked notes when a command on a count was sent for the first time. One that stays without an
// answer is given up.
func (s *Sim) noteAsked(x *site, f *flight) {
	if key, ok := s.numbered(f); ok {
		if c := s.of(x); c.out[key] == 0 {
			c.out[key] = s.now
		}
	}
}

// noteAnswered notes that it is answered.
func (s *Sim) noteAnswered(x *site, f *flight) {
	if key, ok := s.numbered(f); ok {
		c := s.of(x)
		if c.out[key] != 0 && s.now.Sub(c.out[key]) > counter.DoubtFor {
			c.unsure = true
		}
		delete(c.out, key)
		delete(c.doubted, key)
	}
}

// noteUnanswered notes that its answer is lost, or that it was not executed, unless an earlier copy
// was.
func (s *Sim) noteUnanswered(x *site, f *flight, lost bool) {
	if key, ok := s.numbered(f); ok {
		c := s.of(x)
		if lost {
			c.doubted[key] = true
		} else if !c.doubted[key] {
			delete(c.out, key)
		}
	}
}

// doubts reports whether a process has a command on a count in doubt: others of it wait behind that.
func (s *Sim) doubts(c *counted, name string) bool {
	for key := range c.doubted {
		if strings.HasPrefix(key, "{"+name+"}:") && s.now.Sub(c.out[key]) <= counter.DoubtFor {
			return true
		}
	}
	return false
}

// noteUncounted notes that a server denies a command on a count, which it has not executed.
func (s *Sim) noteUncounted(x *site, words []string) {
	if words[1] == script.Counter.SHA {
		s.of(x).unsure = true
	}
}

// value is what the semaphore has.
func (s *Sim) value() int64 {
	if h := s.server.Get(tallied); h != nil && h.Value != "" {
		return model.Number(h.Value)
	}
	return 0
}

// countRivals has a client of another kind take permits, and give them back; and open the
// latch.
func (s *Sim) countRivals() {
	if s.calm {
		return
	}
	s.after(s.between(0, 5*time.Second), nil, s.countRivals)
	s.inherit()
	if s.chance(10) {
		s.tell("the semaphore is deleted, with %d permits", s.value())
		s.counts.all -= s.value()
		delete(s.server.Keys, tallied)
	}
	if s.value() > 0 {
		s.addPermits(-1)
		s.counts.rival++
		s.tell("a rival has a permit, %d are left", s.value())
		s.after(s.between(0, 5*time.Second), nil, func() {
			s.counts.rival--
			s.addPermits(1)
		})
	}
	if s.chance(3) {
		s.openLatch()
	}
}

// addPermits is what somebody else does with the semaphore, who says so.
func (s *Sim) addPermits(n int64) {
	at := s.keeps(s.server, tallied)
	s.server.Keys[tallied] = &model.Hash{Text: true, Value: strconv.FormatInt(s.value()+n, 10)}
	if s.value() > 0 {
		s.published(at, "redisson_sc:{"+tallied+"}", s.verb())
	}
}

// inherit has somebody give back what processes had that are gone, and, when all is over, what
// was given up: a semaphore has no lease.
func (s *Sim) inherit() {
	for _, p := range s.processes {
		if c := s.of(p.sites[0]); c.taken != 0 && (p.dead || c.unsure && s.calm) {
			n := c.taken - s.holdsOf(p)
			s.tell("%d permits of %s are given back", n, p.name)
			c.taken -= n
			s.addPermits(n)
		}
	}
}

// holdsOf is how many permits the programs of a process have.
func (s *Sim) holdsOf(p *process) (n int64) {
	for _, u := range s.counts.users {
		if u.p == p && !p.dead && u.have != nil && u.have.Err() == nil {
			n += int64(u.have.Count())
		}
	}
	return n
}

// calmCounts lets nobody wait for ever: those who would have counted down may be gone.
func (s *Sim) calmCounts() {
	s.inherit()
	if lack := supply - s.counts.all; lack > 0 {
		s.counts.all += lack
		s.addPermits(lack)
	}
	s.openLatch()
}

// long reports whether a command was out for so long that it may be given up.
func (c *counted) long(now clock.Instant) bool {
	if c.unsure {
		return true
	}
	for _, since := range c.out {
		if now.Sub(since) > counter.DoubtFor-time.Second {
			return true
		}
	}
	return false
}

// checkCounts holds the semaphore and the latch against the promises.
func (s *Sim) checkCounts() {
	all := s.value() + s.counts.rival
	for _, p := range s.processes {
		x := p.sites[0]
		c := s.of(x)
		if p.dead && c.taken < 0 { // its last release was executed after somebody had given that back
			n := c.taken
			c.taken = 0
			s.addPermits(n)
			all += n
		}
		all += c.taken
		for _, since := range c.out {
			c.unsure = c.unsure || s.now.Sub(since) > counter.DoubtFor
		}
		if held := s.holdsOf(p); held > c.taken {
			s.fail("the programs of %s have %d permits, and the server has given it %d", p.name, held, c.taken)
		}
	}
	if all != s.counts.all {
		s.fail("there are %d permits in all, and not %d", all, s.counts.all)
	}
	for key, h := range s.server.Keys {
		if strings.Contains(key, ":pawl:") && (h.Expire == 0 || h.Expire > s.server.Milliseconds()+model.MarkFor) {
			s.fail("the mark %s stays", key)
		}
	}
	if s.server.Get(latch) == nil {
		s.counts.was = s.now
	}
	s.checkCountsHealthy()
}

// checkCountsHealthy: nobody waits for what is there.
func (s *Sim) checkCountsHealthy() {
	s.checkOpened()
	limit := wakeUp
	if s.cluster != nil {
		limit = 10*time.Second + slowest // messages to nobody
	}
	since := func(at clock.Instant, name string, there bool) clock.Instant {
		switch {
		case !there || !s.healthy():
			return 0
		case at == 0:
			return s.now
		case s.now.Sub(at) > limit:
			s.fail("somebody waits for %s, which is there since %v", name, s.now.Sub(at))
		}
		return at
	}
	s.counts.open = since(s.counts.open, latch, s.server.Get(latch) == nil && s.countAwaited(latch))
	for _, p := range s.processes {
		first := s.firstCounter(p)
		there := first != nil && int64(first.wants) <= s.value() && !s.moves(tallied) // else TRYAGAIN
		s.counts.more[p] = since(s.counts.more[p], tallied, there)
	}
}

// firstCounter is the first waiter for permits in a process that runs; nil if there is none.
func (s *Sim) firstCounter(p *process) (first *expectedCount) {
	for _, u := range s.counts.users {
		if u.p == p && !p.dead && p.awake() && u.waits == tallied && (first == nil || u.asked < first.asked) {
			first = u
		}
	}
	return first
}

// moves reports whether the slot of a name does.
func (s *Sim) moves(name string) bool {
	return s.cluster != nil && s.cluster.slots[resp.SlotOf(name)].to != nil
}

func (s *Sim) countAwaited(name string) bool {
	return slices.ContainsFunc(s.counts.users, func(u *expectedCount) bool {
		behind := s.moves(name) && s.doubts(s.of(u.p.sites[0]), name) // the doubt has no answer until the slot has moved
		return !u.p.dead && u.p.awake() && u.waits == name && !behind
	})
}

// restCounts checks that nothing of the counts is left.
func (s *Sim) restCounts() {
	for _, p := range s.processes {
		if c := s.of(p.sites[0]); !p.dead && p.refuses == 0 && !c.unsure {
			if c.taken != 0 {
				s.fail("at rest %s has taken %d permits", p.name, c.taken)
			}
		}
		if c := s.of(p.sites[0]); !p.dead && c.excess() > 0 {
			s.fail("at rest the server has executed more for %s than its programs know of: %v, and perhaps %v", p.name, c.unreported, c.perhaps)
		}
	}
	for _, u := range s.counts.users {
		if u.busy && !u.p.dead {
			s.fail("at rest %s waits still", u.name)
		}
	}
}

// endsCounts checks that those who have permits are told that Close gives them back.
func (x *site) endsCounts() {
	s := x.sim
	if s.counts == nil || x != x.process.sites[0] {
		return
	}
	for _, u := range s.counts.users {
		if have := u.have; u.p == x.process && have != nil {
			s.after(settled, u.p, func() {
				if have.Err() == nil && u.p.awake() {
					s.fail("%s is being closed, and %s has permits", x.name, u.name)
				}
			})
		}
	}
}

// hasLeftCounts checks what an engine says that was closed: nothing is left of it.
func (x *site) hasLeftCounts(err error) {
	s := x.sim
	if s.counts == nil || x != x.process.sites[0] {
		return
	}
	if c := s.of(x); err == nil && !c.unsure && c.taken != 0 {
		s.fail("%s: Close says that nothing is left, and it has taken %d permits", x.name, c.taken)
	}
	for _, u := range s.counts.users {
		if since := u.since; u.p == x.process && u.waits != "" {
			s.after(settled, u.p, func() {
				if u.waits != "" && u.since == since && u.p.awake() {
					s.fail("%s is closed, and %s waits", x.name, u.name)
				}
			})
		}
	}
}
