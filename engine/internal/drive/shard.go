package drive

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
)

// A Shard is one lock and what it guards: its resources, and everything that belongs to
// them (requests, holdings, waits, debts). Every transition of a resource happens
// under its shard's lock. Commands are sent and users are told after it (see Table.Run).
//
// It is the machine.Port of its resources.
type Shard struct {
	Table     *Table
	mu        sync.Mutex
	resources [kind.Count]map[string]*machine.Resource
	free      []*machine.Resource // ready for use again
	ids       idSource
	count     machine.Counters

	_ [64]byte // neighbours do not share a cache line
}

// maxFree bounds the resources that a shard keeps for use again.
const maxFree = 64

// Lock takes the shard's lock. No other lock of a shard is taken under it, and no code of a
// user runs.
func (s *Shard) Lock() { s.mu.Lock() }

// Unlock gives the shard's lock back.
func (s *Shard) Unlock() { s.mu.Unlock() }

// Find returns the resource of a name, nil if there is none. The caller holds the lock.
func (s *Shard) Find(k Key) *machine.Resource { return s.resources[k.Kind][k.Name] }

// Get returns the resource of a name, made if need be. The caller holds the lock.
func (s *Shard) Get(k Key, route uint64) *machine.Resource {
	if r := s.Find(k); r != nil {
		return r
	}
	var r *machine.Resource
	if n := len(s.free); n > 0 {
		r, s.free[n-1] = s.free[n-1], nil
		s.free = s.free[:n-1]
	} else {
		r = &machine.Resource{Port: s}
	}
	r.Reset(k.Name, route, uint8(k.Kind), k.Kind.Polls())
	s.resources[k.Kind][k.Name] = r
	return r
}

// All are the resources of the shard, in the order of their names: what a visit of them leads
// to must not hang on that of a map. The caller holds the lock.
func (s *Shard) All() (all []*machine.Resource) {
	for _, named := range s.resources {
		for _, name := range slices.Sorted(maps.Keys(named)) {
			all = append(all, named[name])
		}
	}
	return all
}

func (s *Shard) len() (n int) {
	for _, named := range s.resources {
		n += len(named)
	}
	return n
}

// Free are the resources that are ready for use again. The caller holds the lock.
func (s *Shard) Free() []*machine.Resource { return s.free }

// ShardOf is the shard of a resource, and KindOf its kind.
func ShardOf(r *machine.Resource) *Shard   { return r.Port.(*Shard) }
func KindOf(r *machine.Resource) kind.Kind { return kind.Kind(r.Kind) }

// OwnerOf is this engine's owner of a resource, with the given number.
func OwnerOf(r *machine.Resource, id int64) script.Owner {
	return script.Owner{Engine: ShardOf(r).Table.ID, ID: id}
}

// The methods below implement machine.Port.

func (s *Shard) Config() *machine.Config     { return &s.Table.Machine }
func (s *Shard) Counters() *machine.Counters { return &s.count }
func (s *Shard) Now() clock.Instant          { return s.Table.World.Clock.Now() }
func (s *Shard) Stamp() clock.Instant        { return s.Table.World.Clock.Stamp() }
func (s *Shard) NewID() int64                { return s.ids.next(s.Table.World.Secret) }
func (s *Shard) Closing() bool               { return s.Table.Closing() }
func (s *Shard) Closed() bool                { return s.Table.Closed() }
func (s *Shard) Up(route uint64) bool        { return s.Table.Client.LaneOf(route).Up() }
func (s *Shard) Trouble(route uint64) error  { return s.Table.Client.LaneError(route) }
func (s *Shard) Sharded() bool               { return s.Table.Client.Sharded() }
func (s *Shard) Both() bool                  { return s.Table.verb() == "BOTH" }

func (s *Shard) Draw(d time.Duration) time.Duration { return s.Table.World.Draw(d) }

func (s *Shard) NewHold(r *machine.Resource, want machine.Acks) *machine.Hold {
	return s.Table.Engine.NewHold(s, r, want)
}

func (s *Shard) NewDebt() *machine.Debt { return &newDebt(s).Debt }
func (s *Shard) NewWait() *machine.Wait { return &newWaiting().Wait }

func (s *Shard) ServerOf(route uint64) machine.Server {
	return machine.Server(s.Table.Recovery.ServerOf(route))
}

func (s *Shard) Pause(r *machine.Resource, at clock.Instant) {
	p := &pauseTimer{res: r, sh: s}
	p.timer.Init(p)
	s.Table.Timers.Schedule(&p.timer, at)
}

func (s *Shard) Unstalled(r *machine.Resource) { s.Table.Recovery.Drop(r) }

func (s *Shard) Idle(r *machine.Resource) {
	delete(s.resources[r.Kind], r.Name)
	s.Table.emptied(s)
	r.Name = "" // it may be long
	if r.Spent || len(s.free) == maxFree {
		return
	}
	if s.free == nil {
		s.free = make([]*machine.Resource, 0, maxFree) // at once: it costs no more than growing
	}
	s.free = append(s.free, r)
}

func (s *Shard) Released(r *machine.Resource, by machine.Server, id int64, at, end clock.Instant) {
	s.Table.Recovery.Released(r, by, id, at, end)
}

func (s *Shard) Unheard(name string)       { s.Table.Engine.Unheard(name) }
func (s *Shard) Refused(o machine.Outcome) { s.Table.noteRefusal(o) }

func (s *Shard) LossError(name string, why machine.Loss) error {
	return s.Table.Engine.LossError(name, why)
}

func (s *Shard) AckError(name string, ack machine.Ack) error {
	return s.Table.Engine.AckError(name, ack.(*resp.Ack))
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
