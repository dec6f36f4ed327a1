package driver

import (
	"encoding/binary"
	"math"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/counter"
	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/clock"
)

// A Shard is one lock and what it guards: the entries of locks, and the counts. Every transition happens
// under that lock. Commands are sent and users are told after it (see Table.Apply).
//
// It is the lock.Port of its entries.
type Shard struct {
	Table    *Table
	mu       sync.Mutex
	Locks    lock.Shard
	counters counter.Shard
	counts   map[CounterKey]*Counter
	ids      idSource
	origins  map[*lock.Hold]*lock.Origin // where holds were asked for; nil unless that is recorded

	_ [64]byte // neighbours do not share a cache line
}

// Lock takes the shard's lock. No other lock of a shard is taken under it, and no code of a
// user runs.
func (s *Shard) Lock() { s.mu.Lock() }

// Unlock does the effects of the transitions under the lock, and gives it back.
func (s *Shard) Unlock() {
	if effects := s.Locks.Effects(); len(effects) > 0 {
		for i := range effects {
			s.apply(&effects[i])
		}
		s.Locks.Applied()
	}
	s.mu.Unlock()
}

// Get returns the entry for a request, made if need be. It is not ok if the name is in use for another
// family, or as a count; then it is one to Refuse the request. The caller holds the lock.
func (s *Shard) Get(k Key, route uint64, a *lock.Request) (r *lock.Entry, ok bool) {
	s.Table.Listener.Used()
	return s.Locks.Get(k.Name, uint8(k.Kind), route, a, s.counts != nil && s.countInUse(k.Name) != nil)
}

// Fits reports whether the name is in use as no other sort of lock, nor as a count. The caller holds
// the lock.
func (s *Shard) Fits(k Key) bool {
	family, used := s.Locks.FamilyOf(k.Name)
	return (!used || kind.Family(family) == k.Kind.Family()) && s.countInUse(k.Name) == nil
}

func (s *Shard) len() int { return s.Locks.Len() + len(s.counts) }

// ShardOf is the shard of an entry.
func ShardOf(r *lock.Entry) *Shard { return r.Shard.Port.(*Shard) }

// OwnerOf is this engine's owner of an entry, with that kind and number.
func OwnerOf(r *lock.Entry, k uint8, id int64) script.Owner {
	return kind.Kind(k).Owner(ShardOf(r).Table.ID, id)
}

// The methods below implement lock.Port.

func (s *Shard) Now() clock.Instant   { return s.Table.World.Clock.Now() }
func (s *Shard) Stamp() clock.Instant { return s.Table.World.Clock.Stamp() }
func (s *Shard) NewID() int64         { return s.ids.next(s.Table.World.RandRead) }

func (s *Shard) Draw(d time.Duration) time.Duration { return s.Table.World.Draw(d) }

func (s *Shard) NewSubscription() *lock.Subscription { return &newSubscription().Subscription }

func (s *Shard) Lane(route uint64) (up bool, trouble error) {
	return s.Table.Client.LaneOf(route).Up(), s.Table.Client.LaneError(route)
}

func (s *Shard) ServerOf(route uint64) lock.ServerID {
	return lock.ServerID(s.Table.Recovery.ServerOf(route))
}

// emptied makes an AwaitEmpty look again, if nothing is left.
func (s *Shard) emptied() {
	if s.Table.Closing() && s.len() == 0 {
		s.Table.lookAgain()
	}
}

func (s *Shard) LossError(kind uint8, name string, why lock.Loss) error {
	return s.Table.Engine.LossError(kind, name, why)
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

// setCompensationTimer sets the timer of a compensation, its Handle.
func (s *Shard) setCompensationTimer(d *lock.Compensation, at clock.Instant) {
	if d.Handle == nil {
		t := new(TaskTimer)
		t.Init(func() { s.do(func(rd *lock.Ready) { d.Fired(s.Now(), rd) }) })
		d.Handle = t
	}
	setTimer(s.Table.Timers, &d.Handle.(*TaskTimer).Timer, at)
}
