package sim

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/world"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/wheel"
)

// process is an engine, and the programs that use it. It is the engine's world, too.
type process struct {
	sim    *Sim
	name   string
	engine *engine.Engine
	events world.Events
	dead   bool
	wakes  clock.Instant // until then it is paused
	missed []func()      // what would have happened meanwhile, in order

	lanes   [2]*conn
	renewal *conn
	pubsub  *pubsub
	timers  map[*wheel.Timer]uint64
	armed   uint64
	users   []*user

	dictation
}

// dictation is what a story says of the next cut: how many commands were not sent, how
// many are executed late, by how much, and how long the connection is away.
type dictation struct {
	unsent, late int
	lateBy, away time.Duration
}

const margin = 100 * time.Millisecond

func (s *Sim) newProcess() *process {
	p := &process{sim: s, name: fmt.Sprintf("P%d", len(s.processes)+1), timers: make(map[*wheel.Timer]uint64)}
	s.processes = append(s.processes, p)
	for i := range p.lanes {
		p.lanes[i] = &conn{p: p, role: resp.RoleLane, lane: lane{p, i}}
	}
	p.renewal = &conn{p: p, role: resp.RoleRenewal}
	p.pubsub = newPubsub(p)
	w := world.World{
		Clock:  (*processClock)(p),
		Client: func(_ resp.Config, e world.Events) world.Client { p.events = e; return (*client)(p) },
		Timers: func(wheel.Config) world.Timers { return (*timers)(p) },
		Go:     func(f func()) { s.after(s.between(0, 300*time.Microsecond), p, f) },
		Int64N: func(n int64) int64 {
			if s.dictated {
				return 0
			}
			return s.random.Int64N(n)
		},
		Secret: func(b []byte) {
			for ; len(b) >= 8; b = b[8:] {
				s.secrets++
				secret := s.secrets // of a story
				if !s.dictated {
					secret = s.random.Uint64()
				}
				binary.LittleEndian.PutUint64(b, secret)
			}
		},
	}
	e, err := engine.New(world.With(context.Background(), w), engine.Config{
		Addrs: []string{"sim:6379"}, Lease: s.lease, Margin: margin, CommandTimeout: commandTimeout,
	})
	if err != nil {
		panic("BUG: sim: " + err.Error())
	}
	p.engine = e
	for _, c := range p.conns() {
		s.after(s.between(0, 50*time.Millisecond), p, c.connect)
	}
	s.after(s.between(0, 50*time.Millisecond), p, p.pubsub.connect)
	for i := range s.users() {
		p.users = append(p.users, newUser(p, i))
	}
	if !s.dictated {
		s.tell("%s starts, with %d users", p.name, len(p.users))
	}
	return p
}

func (s *Sim) users() int {
	if s.dictated {
		return 0
	}
	return 2 + s.random.IntN(4)
}

func (p *process) conns() []*conn { return []*conn{p.lanes[0], p.lanes[1], p.renewal} }

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
	for _, c := range p.conns() {
		flights := c.out
		c.up, c.out, c.inbox = false, nil, nil
		c.life++
		c.lose(flights)
	}
	p.pubsub.up = false
	p.pubsub.life++
}

// The methods below are the process as a clock.
type processClock process

func (p *processClock) Now() clock.Instant   { return p.sim.now }
func (p *processClock) Stamp() clock.Instant { return p.sim.now }
func (p *processClock) Wall() time.Time      { return time.Unix(1_700_000_000, int64(p.sim.now)) }

func (p *process) wall() time.Time { return (*processClock)(p).Wall() }

// The methods below are the process as timers.
type timers process

func (p *timers) Schedule(t *wheel.Timer, at clock.Instant) {
	s := p.sim
	p.armed++
	number := p.armed
	p.timers[t] = number
	fire := func() {
		if p.timers[t] == number {
			delete(p.timers, t)
			t.Fire(s.now)
		}
	}
	s.at(max(at, s.now), nil, func() { // how late it is, is decided by how things are then
		late := s.between(0, 12*time.Millisecond)
		if !s.mild() && s.chance(200) {
			late = s.between(0, margin/2)
		}
		s.after(late, (*process)(p), fire)
	})
}

func (p *timers) Cancel(t *wheel.Timer) bool {
	_, was := p.timers[t]
	delete(p.timers, t)
	return was
}

func (p *timers) Close()             {}
func (p *timers) Stats() wheel.Stats { return wheel.Stats{} }

// lane names one of a process.
type lane struct {
	p     *process
	index int
}

// Up implements world.Lane.
func (l lane) Up() bool { return l.p.lanes[l.index].up }

// The methods below are the process as a client.
type client process

func (p *client) conn(route uint64) *conn { return p.lanes[route%2] }

func (p *client) WaitFirst(context.Context) error                      { return nil }
func (p *client) Submit(route uint64, r resp.Request)                  { p.conn(route).submit(r) }
func (p *client) SubmitRenewal(_ uint64, r resp.Request)               { p.renewal.submit(r) }
func (p *client) SubmitDurable(route uint64, r resp.DurableRequest)    { p.conn(route).submit(r) }
func (p *client) SubmitDurableRenewal(_ uint64, r resp.DurableRequest) { p.renewal.submit(r) }
func (p *client) Subscribe(ch *resp.Channel)                           { p.pubsub.subscribe(ch) }
func (p *client) Unsubscribe(ch *resp.Channel)                         { p.pubsub.unsubscribe(ch) }
func (p *client) LaneOf(route uint64) world.Lane                       { return lane{(*process)(p), int(route % 2)} }
func (p *client) ServerOf(uint64) resp.ServerID                        { return 1 }
func (p *client) AddrOf(uint64) string                                 { return "sim:6379" }
func (p *client) Clustered() bool                                      { return false }
func (p *client) Sharded() bool                                        { return false }
func (p *client) Stats() resp.Stats                                    { return resp.Stats{} }
func (p *client) Close() error                                         { return nil }

func (p *client) Route(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}

func (p *client) LaneError(route uint64) error {
	if p.conn(route).up {
		return nil
	}
	return errCut
}
