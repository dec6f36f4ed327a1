package sim

import (
	"fmt"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/clock"
)

// process is the engines, one for each server, and the programs that use them.
type process struct {
	sim    *Sim
	name   string
	sites  []*site
	users  []*user
	dead   bool
	wakes  clock.Instant // until then it is paused
	calls  int           // that block, and have not returned
	missed []func()      // what would have happened meanwhile, in order

	granted clock.Instant // permits before that may be lost, by a failover

	leaving
	dictation
}

// dictation is what a story says of the next cut: how many commands were not sent, how
// many are executed late, by how much, and how long the connection is away.
type dictation struct {
	unsent, late int
	lateBy, away time.Duration
}

func (s *Sim) newProcess() *process {
	p := &process{sim: s, name: fmt.Sprintf("P%d", len(s.processes)+1)}
	s.processes = append(s.processes, p)
	for i := range s.servers {
		p.sites = append(p.sites, p.newSite(i))
	}
	for i := range s.users() {
		p.users = append(p.users, newUser(p, i))
	}
	if s.counts != nil {
		for range 2 + s.random.IntN(3) {
			s.newCounter(p)
		}
	}
	if s.semaphore {
		for i := range 1 + s.random.IntN(4) {
			s.newPermitUser(p, i)
		}
	}
	if !s.dictated {
		s.after(0, p, p.clashes)
		s.after(0, p, p.findDeadlocks)
		s.tell("%s starts, with %d users", p.name, len(p.users))
	}
	return p
}

// engine is that of the first server, which has all names but those of RedLocks.
func (p *process) engine() *engine.Engine { return p.sites[0].engine }

func (s *Sim) users() int {
	if s.dictated {
		return 0
	}
	if s.contended != nil {
		return 4 + s.random.IntN(5)
	}
	return 2 + s.random.IntN(4)
}

// sleep keeps what would happen in a process that is paused.
func (p *process) sleep(do func()) {
	p.missed = append(p.missed, do)
	if len(p.missed) == 1 {
		p.sim.at(p.wakes, nil, p.wake)
	}
}

// awake reports whether it was not paused until a moment ago: then timers that were due
// may not have run yet.
func (p *process) awake() bool { return p.sim.now.Sub(p.wakes) > margin }

func (p *process) wake() {
	if p.wakes > p.sim.now { // it was paused again
		p.sim.at(p.wakes, nil, p.wake)
		return
	}
	for _, do := range p.missed {
		p.sim.at(p.sim.now, p, do)
	}
	p.missed = nil
}

// kill ends the process without a word.
func (p *process) kill() {
	p.sim.tell("%s is killed", p.name)
	p.dead = true
	for _, x := range p.sites {
		x.kill()
	}
}

func (p *process) wall() time.Time { return wallAt(p.sim.now) }

func wallAt(now clock.Instant) time.Time { return time.Unix(1_700_000_000, int64(now)) }
