package engine

import (
	"encoding/binary"
	"math"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
)

// A shard is one lock and what it guards: its resources, and everything that belongs to
// them (acquisitions, holdings, waits, debts). Every transition of a resource happens
// under its shard's lock. Commands are sent and users are told after it (see run).
//
// It is the machine.Port of its resources.
type shard struct {
	eng       *Engine
	mu        sync.Mutex
	resources [kind.Count]map[string]*machine.Resource
	free      []*machine.Resource // ready for use again
	ids       idSource
	count     machine.Counters

	_ [64]byte // neighbours do not share a cache line
}

// maxFree bounds the resources that a shard keeps for use again.
const maxFree = 64

// getLocked returns the resource of a name, made if need be.
func (s *shard) getLocked(k key, route uint64) *machine.Resource {
	if r := s.resources[k.kind][k.name]; r != nil {
		return r
	}
	var r *machine.Resource
	if n := len(s.free); n > 0 {
		r, s.free[n-1] = s.free[n-1], nil
		s.free = s.free[:n-1]
	} else {
		r = &machine.Resource{Port: s}
	}
	r.Reset(k.name, route, uint8(k.kind), k.kind.Polls())
	s.resources[k.kind][k.name] = r
	return r
}

// shardOf is the shard of a resource, and kindOf its kind.
func shardOf(r *machine.Resource) *shard   { return r.Port.(*shard) }
func kindOf(r *machine.Resource) kind.Kind { return kind.Kind(r.Kind) }
func engineOf(r *machine.Resource) *Engine { return shardOf(r).eng }

// The methods below implement machine.Port.

func (s *shard) Config() *machine.Config     { return &s.eng.machine }
func (s *shard) Counters() *machine.Counters { return &s.count }
func (s *shard) Now() clock.Instant          { return s.eng.clock.Now() }
func (s *shard) Stamp() clock.Instant        { return s.eng.clock.Stamp() }
func (s *shard) NewID() int64                { return s.ids.next(s.eng.world.Secret) }
func (s *shard) Closing() bool               { return s.eng.closing.Load() }
func (s *shard) Closed() bool                { return s.eng.closed.begun.Load() }
func (s *shard) Up(route uint64) bool        { return s.eng.client.LaneOf(route).Up() }
func (s *shard) Trouble(route uint64) error  { return s.eng.client.LaneError(route) }
func (s *shard) Sharded() bool               { return s.eng.client.Sharded() }
func (s *shard) Both() bool                  { return s.eng.verb() == "BOTH" }

func (s *shard) Draw(d time.Duration) time.Duration { return s.eng.world.Draw(d) }

func (s *shard) NewHold(r *machine.Resource, want machine.Acks) *machine.Hold {
	return &newHolding(s, r, want).Hold
}

func (s *shard) NewDebt() *machine.Debt { return &newDebt(s).Debt }
func (s *shard) NewWait() *machine.Wait { return &newWaiting().Wait }

func (s *shard) ServerOf(route uint64) machine.Server {
	return machine.Server(s.eng.released.serverOf(route))
}

func (s *shard) Pause(r *machine.Resource, at clock.Instant) {
	p := &pauseTimer{res: r, sh: s}
	p.timer.Init(p)
	s.eng.wheel.Schedule(&p.timer, at)
}

func (s *shard) Unstalled(r *machine.Resource) { s.eng.recovery.drop(r) }

func (s *shard) Idle(r *machine.Resource) {
	delete(s.resources[r.Kind], r.Name)
	s.eng.emptied(s)
	r.Name = "" // it may be long
	if r.Spent || len(s.free) == maxFree {
		return
	}
	if s.free == nil {
		s.free = make([]*machine.Resource, 0, maxFree) // at once: it costs no more than growing
	}
	s.free = append(s.free, r)
}

func (s *shard) Released(r *machine.Resource, by machine.Server, id int64, at, end clock.Instant) {
	s.eng.released.note(resp.ServerID(by), r.Route,
		pastRelease{name: r.Name, id: id, at: at, end: end, kind: kindOf(r)})
}

func (s *shard) Unheard(name string)       { s.eng.logUnheard(name) }
func (s *shard) Refused(o machine.Outcome) { s.eng.noteRefusal(o) }

func (s *shard) LossError(name string, why machine.Loss) error {
	return &LostError{Name: name, Reason: LostReason(why)}
}

func (s *shard) AckError(name string, ack machine.Ack) error {
	return s.eng.ackError(name, ack.(*resp.Ack))
}

// idSource hands out the numbers of owners: 63 bits that nobody can guess, read
// in bulk.
type idSource struct {
	buf  [256]byte
	left int
}

func (s *idSource) next(secret func([]byte)) int64 {
	for {
		if s.left == 0 {
			secret(s.buf[:])
			s.left = len(s.buf)
		}
		s.left -= 8
		if id := int64(binary.LittleEndian.Uint64(s.buf[s.left:]) & math.MaxInt64); id != 0 {
			return id
		}
	}
}
