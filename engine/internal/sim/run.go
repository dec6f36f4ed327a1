package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// Result is what became of a run.
type Result struct {
	Events  uint64
	Print   uint64 // of the story: two runs of a seed have the same
	Story   string // if it was asked for
	Failure error

	HandedOver uint64 // grants that went from one hold to the next
	Deadlocks  uint64 // that programs were told of
	Suspected  uint64 // the same, of those that are possible
}

// Run lives through the world of a seed: a few minutes with faults, and then calm, until
// nothing happens any more.
func Run(seed uint64, story bool) Result {
	s := newSim(seed)
	if story {
		s.story = new(strings.Builder)
	}
	// With a short lease much expires by itself. With a long one, what leaks stays.
	s.lease = []time.Duration{10 * time.Second, 2 * time.Minute}[s.random.IntN(2)]
	switch s.random.IntN(9) {
	case 0, 1, 2:
		s.serve(3)
	case 3, 4:
		s.divide(2+s.random.IntN(2), []string{"on", "on", "off"}[s.random.IntN(3)])
		s.after(s.between(0, time.Minute), nil, s.migrations)
	}
	if s.cluster == nil && s.random.IntN(3) == 0 {
		s.replicas()
	} else if s.random.IntN(3) == 0 {
		s.beginCounts()
	}
	if s.random.IntN(3) == 0 {
		s.beginPermits()
	}
	s.inspected = s.cluster == nil && s.random.IntN(3) == 0
	s.voting = plain[0]
	if s.random.IntN(2) == 0 {
		s.voting = []string{spin, fenced, fair, rw}[s.random.IntN(4)]
	}
	if s.voting == rw && s.server.replica != nil { // see the documentation of the package
		s.voting = fair
	}
	s.backoff = backoffs[s.random.IntN(len(backoffs))]
	switch s.random.IntN(7) {
	case 0:
		s.contended = names[:2]
	case 4:
		s.contended = []string{"a", spin}
	case 1:
		s.contended, s.acked = []string{"a", fenced}, s.random.IntN(2) == 0
	case 2, 3:
		s.favours = apart
	}
	s.front = 1 + s.random.IntN(2)
	processes := 1 + s.random.IntN(3)
	switch s.random.IntN(16) {
	case 0:
		processes += 3
	case 1: // most queue
		s.front, processes = 1, 5
		s.contended = [][]string{{"a"}, {"a", fenced}, {fenced}, {"a", "b"}}[s.random.IntN(4)]
	}
	for range processes {
		s.newProcess()
	}
	if s.server.replica == nil {
		s.after(s.between(0, time.Minute), nil, s.throngs)
	}
	s.after(0, nil, s.faults)
	s.after(s.between(0, 3*time.Minute), nil, s.beginLull)
	s.after(0, nil, s.rivals)
	s.after(s.between(0, 5*time.Minute), nil, s.departures)
	s.after(s.between(time.Second, 8*time.Minute), nil, s.becomeCalm)
	for s.step() {
		if s.calm && s.now > s.quiet.Add(patience) {
			s.fail("it does not come to rest")
		}
	}
	if s.failure == nil {
		s.now = s.now.Add(time.Hour) // for what expires by itself
		s.rest()
	}
	r := Result{Events: s.steps, Print: s.print, Failure: s.failure, Deadlocks: s.deadlocks, Suspected: s.suspected}
	if story {
		r.Story = s.story.String()
	}
	for _, p := range s.processes {
		for _, x := range p.sites {
			r.HandedOver += x.engine.Stats().HandedOver
		}
	}
	s.end()
	return r
}

func newSim(seed uint64) *Sim {
	s := &Sim{
		seed: seed, random: rand.New(rand.NewPCG(seed, 1)), now: begin,
		robbed: make(map[string]clock.Instant), denied: make(map[string]clock.Instant), late: make(map[string]bool), latePlaces: make(map[string]bool), excused: make(map[string]clock.Instant),
		free: make(map[string]freed), announced: make(map[string]clock.Instant), heard: make(map[string]clock.Instant), stray: make(map[string]clock.Instant), shortened: make(map[string]shortened), ghosts: make(map[string]bool), tokens: make(map[string]int64), strayPermits: make(map[string]clock.Instant),
	}
	s.turns.passed, s.reading.open = make(map[string][]*turn), make(map[*held]opened)
	s.ctx, s.leave = context.WithCancel(context.Background())
	s.serve(1)
	return s
}

// end lets go of everything. A hold that was renewed has a cleanup, which keeps its engine,
// and so the world; as long as that kept the hold, none of them would ever be collected.
func (s *Sim) end() {
	s.over = true
	s.leave() // a context keeps its hold, too
	for _, t := range s.threads {
		t.stop()
	}
	s.kept, s.holds, s.processes, s.events, s.servers, s.server, s.cluster = nil, nil, nil, nil, nil, nil, nil
}

// patience is how long a calm world may go on: holds of programs end, leases run out,
// compensations are settled once more after a lease.
const patience = 15 * time.Minute

// beginLull begins a time without faults, in which the programs go on.
func (s *Sim) beginLull() {
	if s.calm {
		return
	}
	s.tell("a lull begins")
	s.lull, s.quiet = true, s.now
	s.stopRefusing()
	s.after(s.between(recovers, 5*recovers), nil, func() {
		s.tell("the lull ends")
		s.lull = false
		s.after(s.between(0, 3*time.Minute), nil, s.beginLull)
	})
}

func (s *Sim) becomeCalm() {
	s.tell("it is calm from here on")
	s.calm, s.quiet = true, s.now
	s.stopRefusing()
	if s.counts != nil { // somebody who would have may have died
		s.after(2*time.Minute, nil, s.calmCounts)
	}
	if s.semaphore {
		s.after(2*time.Minute, nil, s.calmPermits)
	}
}

func (s *Sim) stopRefusing() {
	for _, v := range s.servers {
		for _, n := range s.nodesOf(v) {
			n.refusesUntil = 0
		}
	}
}

// rest checks that a world in which nothing happens any more has nothing left.
func (s *Sim) rest() {
	for _, v := range s.servers {
		if left := slices.Concat(v.Record(), v.Queued(s.leaves), v.Waiting(func(engine string) bool { return s.leaves(engine + ":") })); len(left) > 0 {
			s.fail("at rest %s has %q", v.name, left)
		}
	}
	if s.counts != nil {
		s.restCounts()
	}
	s.restPermits()
	for _, p := range s.processes {
		if p.dead {
			continue
		}
		if p.leaves > 0 {
			s.fail("at rest %s is being closed still", p.name)
		}
		if p.calls > 0 {
			s.fail("at rest %d calls of %s have not returned", p.calls, p.name)
		}
		for _, u := range p.users {
			if u.busy {
				s.fail("at rest %s waits still", u.name)
			}
		}
		for _, x := range p.sites {
			n := x.engine.Stats()
			if n.Held != 0 || n.Waiting != 0 {
				s.fail("at rest %s has %d holds and %d who wait", x.name, n.Held, n.Waiting)
			}
			ended := n.Released
			for _, lost := range n.Lost {
				ended += lost
			}
			if ended != n.Acquired || n.HandedOver > n.Acquired {
				s.fail("at rest %s has counted %d holds, and %d that ended: %+v", x.name, n.Acquired, ended, n)
			}
			if wanted := x.wanted(); len(wanted) > 0 {
				s.fail("at rest %s is subscribed to %s", x.name, wanted[0].name)
			}
			if len(x.timers) > 0 {
				s.fail("at rest %s has %d timers", x.name, len(x.timers))
			}
		}
	}
}
