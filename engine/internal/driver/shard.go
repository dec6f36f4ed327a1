package driver

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/counter"
	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
)

// A Shard is one lock and what it guards: its entries, and everything that belongs to
// them (requests, holdings, waits, compensations). Every transition of an entry happens
// under its shard's lock. Commands are sent and users are told after it (see Table.Apply).
//
// It is the lock.Port of its entries.
type Shard struct {
	Table      *Table
	mu         sync.Mutex
	entries    map[string]*lock.Entry
	groups     map[string]*entryGroup // of kinds whose requests, or grants, are apart from each other
	perRequest int                    // the entries in groups
	free       []*lock.Entry          // ready for use again
	counts     map[CounterKey]*Counter
	counted    counter.Counters
	number     uint64 // of the latest command of a count
	ids        idSource
	count      lock.Counters
	origins    map[*lock.Hold]*lock.Origin // where holds were asked for; nil unless that is recorded

	_ [64]byte // neighbours do not share a cache line
}

// maxFree bounds the entries that a shard keeps for use again.
const maxFree = 64

// Lock takes the shard's lock. No other lock of a shard is taken under it, and no code of a
// user runs.
func (s *Shard) Lock() { s.mu.Lock() }

// Unlock gives the shard's lock back.
func (s *Shard) Unlock() { s.mu.Unlock() }

// entryGroup is the entries of a name whose requests are apart from each other: one for each
// request that waits, or for those that wait together, and for the grant that they get; or one
// for each grant.
type entryGroup struct {
	family  kind.Family
	members []*lock.Entry
	room    [2]*lock.Entry // of the first members
	readers lock.Readers
}

// Find returns the entry that all requests of a name share, nil if there is none. The caller
// holds the lock.
func (s *Shard) Find(k Key) *lock.Entry { return s.entries[k.Name] }

// Get returns the entry for a request, made if need be: that of its name, or, if requests of its
// kind are apart from each other, one of its own or that where others wait. It is not
// ok if the name is in use for another family, or as a count; then it is one to Refuse the request.
// The caller holds the lock.
func (s *Shard) Get(k Key, route uint64, a *lock.Request) (r *lock.Entry, ok bool) {
	r = s.entries[k.Name]
	c := s.groups[k.Name]
	family := k.Kind.Family()
	if r != nil && kind.Family(r.Family) != family {
		if !r.Vacate() {
			return r, false
		}
		r = nil
	}
	switch {
	case c != nil && c.family != family:
		return c.members[0], false
	case s.counts != nil && s.countInUse(k.Name) != nil:
		if r == nil { // for its refusal
			r = s.make(k, route)
			s.entries[k.Name] = r
		}
		return r, false
	case k.Kind.Traits().PerRequestEntry:
		if c != nil {
			if r := c.readers.For(a); r != nil {
				return r, true
			}
		}
		return s.newInGroup(k, route, c), true
	case r == nil:
		r = s.make(k, route)
		s.entries[k.Name] = r
	}
	return r, true
}

// Fits reports whether the name is in use as no other sort of lock, nor as a count. The caller holds
// the lock.
func (s *Shard) Fits(k Key) bool {
	family, r, c := k.Kind.Family(), s.entries[k.Name], s.groups[k.Name]
	return (r == nil || kind.Family(r.Family) == family || !r.InUse()) && (c == nil || c.family == family) && s.countInUse(k.Name) == nil
}

// newInGroup makes an entry of a group, which is nil for the first.
func (s *Shard) newInGroup(k Key, route uint64, c *entryGroup) *lock.Entry {
	r := s.make(k, route)
	if c == nil {
		if s.groups == nil {
			s.groups = make(map[string]*entryGroup)
		}
		c = &entryGroup{family: k.Kind.Family()}
		c.members = c.room[:0]
		s.groups[k.Name] = c
	}
	c.members = append(c.members, r)
	r.ReaderIndex = int32(len(c.members)) // from 1 on
	s.perRequest++
	return r
}

// make makes an entry for a name, or takes one that is free.
func (s *Shard) make(k Key, route uint64) *lock.Entry {
	var r *lock.Entry
	if n := len(s.free); n > 0 {
		r, s.free[n-1] = s.free[n-1], nil
		s.free = s.free[:n-1]
	} else {
		r = &lock.Entry{Port: s}
	}
	s.Table.Listener.Used()
	r.Reset(k.Name, route)
	r.Family, r.ReaderIndex = uint8(k.Kind.Family()), 0
	return r
}

// remove takes an entry out that is idle.
func (s *Shard) remove(r *lock.Entry) {
	if r.ReaderIndex == 0 {
		delete(s.entries, r.Name)
		return
	}
	c := s.groups[r.Name]
	last := len(c.members) - 1
	c.members[r.ReaderIndex-1] = c.members[last]
	c.members[r.ReaderIndex-1].ReaderIndex = r.ReaderIndex
	c.members[last] = nil
	c.members = c.members[:last]
	if s.perRequest--; last == 0 {
		delete(s.groups, r.Name)
	}
}

// behind are the readers that are behind the writers of a name.
func (s *Shard) behind(writers *lock.Entry) (all []*lock.Entry) {
	c := s.groups[writers.Name]
	if c == nil || writers.ReaderIndex != 0 {
		return nil
	}
	for _, r := range c.members {
		if r.Blocked() == lock.BehindWriter {
			all = append(all, r)
		}
	}
	return all
}

// All are the entries of the shard, in the order of their names: what a visit of them leads
// to must not hang on that of a map. The caller holds the lock.
func (s *Shard) All() (all []*lock.Entry) {
	for _, name := range slices.Sorted(maps.Keys(s.entries)) {
		all = append(all, s.entries[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.groups)) {
		all = append(all, s.groups[name].members...)
	}
	return all
}

func (s *Shard) len() int { return len(s.entries) + s.perRequest + len(s.counts) }

// Free are the entries that are ready for use again. The caller holds the lock.
func (s *Shard) Free() []*lock.Entry { return s.free }

// ShardOf is the shard of an entry.
func ShardOf(r *lock.Entry) *Shard { return r.Port.(*Shard) }

// OwnerOf is this engine's owner of an entry, with that kind and number.
func OwnerOf(r *lock.Entry, k uint8, id int64) script.Owner {
	return kind.Kind(k).Owner(ShardOf(r).Table.ID, id)
}

// The methods below implement lock.Port.

func (s *Shard) Config() *lock.Config       { return &s.Table.Lock }
func (s *Shard) Counters() *lock.Counters   { return &s.count }
func (s *Shard) Now() clock.Instant         { return s.Table.World.Clock.Now() }
func (s *Shard) Stamp() clock.Instant       { return s.Table.World.Clock.Stamp() }
func (s *Shard) NewID() int64               { return s.ids.next(s.Table.World.RandRead) }
func (s *Shard) Closing() bool              { return s.Table.Closing() }
func (s *Shard) Closed() bool               { return s.Table.Closed() }
func (s *Shard) Up(route uint64) bool       { return s.Table.Client.LaneOf(route).Up() }
func (s *Shard) Trouble(route uint64) error { return s.Table.Client.LaneError(route) }
func (s *Shard) Clustered() bool            { return s.Table.Slotted }

func (s *Shard) Draw(d time.Duration) time.Duration { return s.Table.World.Draw(d) }

func (s *Shard) NewGrant(r *lock.Entry) *lock.Hold { return s.Table.Engine.NewGrant(r) }
func (s *Shard) NewHold(of *lock.Hold) *lock.Hold  { return s.Table.Engine.NewHold(of) }

func (s *Shard) NewCompensation() *lock.Compensation { return &newCompensation(s).Compensation }
func (s *Shard) NewSubscription() *lock.Subscription { return &newSubscription().Subscription }

func (s *Shard) ServerOf(route uint64) lock.ServerID {
	return lock.ServerID(s.Table.Recovery.ServerOf(route))
}

func (s *Shard) Pause(r *lock.Entry, at clock.Instant) {
	p := &pauseTimer{entry: r, sh: s}
	p.timer.Init(p)
	s.Table.Timers.Schedule(&p.timer, at)
}

func (s *Shard) Unstalled(r *lock.Entry) { s.Table.Recovery.Drop((*stalled)(r)) }

func (s *Shard) Idle(r *lock.Entry) {
	s.remove(r)
	s.Table.emptied(s)
	r.Name = "" // it may be long
	if r.Pinned || len(s.free) == maxFree {
		return
	}
	if s.free == nil {
		s.free = make([]*lock.Entry, 0, maxFree) // at once: it costs no more than growing
	}
	s.free = append(s.free, r)
}

func (s *Shard) Ahead(r *lock.Entry) *lock.Entry {
	if r.ReaderIndex == 0 {
		return nil
	}
	return s.entries[r.Name]
}

func (s *Shard) Behind(r *lock.Entry) bool {
	if len(s.groups) == 0 || r.ReaderIndex != 0 {
		return false
	}
	c := s.groups[r.Name]
	return c != nil && slices.ContainsFunc(c.members, func(r *lock.Entry) bool { return r.Blocked() == lock.BehindWriter })
}

// Readers implements lock.Port.
func (s *Shard) Readers(r *lock.Entry) *lock.Readers {
	if len(s.groups) == 0 {
		return nil
	}
	if c := s.groups[r.Name]; c != nil {
		return &c.readers
	}
	return nil
}

// NewEntry implements lock.Port.
func (s *Shard) NewEntry(r *lock.Entry, k uint8) *lock.Entry {
	return s.newInGroup(Key{r.Name, kind.Kind(k)}, r.Route, s.groups[r.Name])
}

func (s *Shard) Traits(k uint8) *lock.Traits { return kind.Kind(k).Traits() }

func (s *Shard) Released(r *lock.Entry, k uint8, by lock.ServerID, id int64, at, end clock.Instant) {
	s.Table.Recovery.Released(r, kind.Kind(k), by, id, at, end)
}

func (s *Shard) NotPublished(name string) { s.Table.Engine.NotPublished(name) }
func (s *Shard) Refused(o lock.Outcome)   { s.Table.noteRefusal(o) }

func (s *Shard) LossError(kind uint8, name string, why lock.Loss) error {
	return s.Table.Engine.LossError(kind, name, why)
}

func (s *Shard) AckError(kind uint8, name string, ack lock.Ack) error {
	return s.Table.Engine.AckError(kind, name, ack.(*resp.Ack))
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
