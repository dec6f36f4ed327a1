package lock

import (
	"maps"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// A Shard has the entries of a part of the names, and what they share. The driver's lock of the shard
// guards it and all that belongs to its entries: requests, holds, subscriptions, compensations. Every
// transition of an entry is made under that lock.
//
// Invariants:
//
//  1. A name has one entry, in entries; or one for each request or grant, in a group; or both, if its
//     readers are apart from its writers. All of them are of one family.
//  2. An entry that is not Detached is in one of the two maps. One that is Detached is in none, and serves
//     another name later, unless it is Retired.
type Shard struct {
	Port    // what surrounds it; never changes, nor do the next two
	Config  *Config
	Traits  []Traits // of each kind
	Phase   Phase
	Count   Counters
	entries map[string]*Entry
	groups  map[string]*group
	grouped int      // the entries in groups
	effects []Effect // of the transitions since the lock was taken
	free    []*Entry // ready for use again
}

// Port is what a transition asks for while it decides: the time, chance, objects that the driver
// has more to, and the state of a lane. What it has done is an Effect, or in its Ready. The methods are called
// under the shard's lock. They do not block, run no code of a user, and do not call back.
type Port interface {
	// Now is the time, Stamp the time of a moment ago, which costs less.
	Now() clock.Instant
	Stamp() clock.Instant
	// Draw returns a random part of d.
	Draw(d time.Duration) time.Duration
	// NewID returns the number of an owner, which nobody can guess and none has had.
	NewID() int64

	NewSubscription() *Subscription

	// Lane reports whether the lane of a route has a connection, and what keeps it from having one.
	Lane(route uint64) (up bool, trouble error)
	// ServerOf names the server of a route, as long as that matters; else it is 0.
	ServerOf(route uint64) ServerID

	// LossError is the error of a hold that was lost.
	LossError(kind uint8, name string, why Loss) error
}

// Phase is how far the end of an engine has come.
type Phase uint8

// The phases, in the order of time.
const (
	Open         Phase = iota
	ShuttingDown       // nothing new is admitted
	Closed             // Close, which a Shutdown may delay, has begun: holds end, too
)

// group is the entries of a name whose requests are apart from each other: one for each
// request that waits, or for those that wait together, and for the grant that they get; or one
// for each grant.
type group struct {
	family  uint8
	members []*Entry
	room    [2]*Entry // of the first members
	readers Readers
}

// maxFree bounds the entries that a shard keeps for use again.
const maxFree = 64

// Init sets up an empty shard.
func (s *Shard) Init(port Port, cfg *Config, traits []Traits) {
	s.Port, s.Config, s.Traits = port, cfg, traits
	s.entries = make(map[string]*Entry)
}

// closing reports whether nothing new is admitted.
func (s *Shard) closing() bool { return s.Phase != Open }

// Get returns the entry for a request, made if need be: that of its name, or, if requests of its
// kind are apart from each other, one of its own or that where others wait. It is not
// ok if the name is in use for another family, or, as taken says, as no lock at all; then it is one to
// Refuse the request.
func (s *Shard) Get(name string, kind uint8, route uint64, a *Request, taken bool) (r *Entry, ok bool) {
	r = s.entries[name]
	g := s.groups[name]
	family := s.Traits[kind].Family
	if r != nil && r.family != family {
		if !r.Vacate() {
			return r, false
		}
		r = nil
	}
	switch {
	case g != nil && g.family != family:
		return g.members[0], false
	case !taken && (s.Traits[kind].Entries == PerRequest || s.Traits[kind].Entries == PerReader):
		if g != nil {
			if r := g.readers.For(a); r != nil {
				return r, true
			}
		}
		return s.makeInGroup(name, family, route), true
	case r == nil:
		r = s.make(name, family, route) // even if it is taken: for the refusal
		s.entries[name] = r
	}
	return r, !taken
}

// makeInGroup makes an entry of a group, and the group for the first.
func (s *Shard) makeInGroup(name string, family uint8, route uint64) *Entry {
	r, g := s.make(name, family, route), s.groups[name]
	if g == nil {
		if s.groups == nil {
			s.groups = make(map[string]*group)
		}
		g = &group{family: family}
		g.members = g.room[:0]
		s.groups[name] = g
	}
	g.members = append(g.members, r)
	r.member = int32(len(g.members)) // from 1 on
	s.grouped++
	return r
}

// make makes an entry for a name, or takes one that is free. If that served another name, nothing is
// left of it: its command has been answered; it has no timer, for the pauses and the waits are objects
// of their own. A hold that ended may point to it still, and at most has it choose its next command
// (see advanceAfterEnd), which does no harm to any name.
func (s *Shard) make(name string, family uint8, route uint64) *Entry {
	var r *Entry
	if n := len(s.free); n > 0 {
		r, s.free[n-1] = s.free[n-1], nil
		s.free = s.free[:n-1]
	} else {
		r = &Entry{Shard: s}
	}
	r.Name, r.Route, r.family, r.member = name, route, family, 0
	r.refused, r.headNext, r.Detached = 0, false, false
	return r
}

// remove takes an entry out of which nothing is left.
func (s *Shard) remove(r *Entry) {
	r.Detached = true
	s.readers(r).forget(r)
	if r.member == 0 {
		delete(s.entries, r.Name)
	} else {
		s.leaveGroup(r)
	}
	s.emit(Removed).Entry = r
}

// recycle lets an entry serve another name, after everything of this one.
func (s *Shard) recycle(r *Entry) {
	r.Name = "" // it may be long
	if r.blocked == Retired || len(s.free) == maxFree {
		return
	}
	if s.free == nil {
		s.free = make([]*Entry, 0, maxFree) // at once: it costs no more than growing
	}
	s.free = append(s.free, r)
}

func (s *Shard) leaveGroup(r *Entry) {
	g := s.groups[r.Name]
	last := len(g.members) - 1
	g.members[r.member-1] = g.members[last]
	g.members[r.member-1].member = r.member
	g.members[last] = nil
	g.members = g.members[:last]
	if s.grouped--; last == 0 {
		delete(s.groups, r.Name)
	}
}

// ahead is, of an entry in a group, the one that all other requests of its name share, if there is one: that of
// the writers ahead of a reader; see handover.go.
func (s *Shard) ahead(r *Entry) *Entry {
	if r.member == 0 {
		return nil
	}
	return s.entries[r.Name]
}

// anyBehind reports whether any reader is behind the writers of a name.
func (s *Shard) anyBehind(writers *Entry) bool {
	if len(s.groups) == 0 || writers.member != 0 {
		return false
	}
	g := s.groups[writers.Name]
	return g != nil && slices.ContainsFunc(g.members, isBehind)
}

func isBehind(r *Entry) bool { return r.blocked == BehindWriter }

// Behind are the readers that are behind the writers of a name.
func (s *Shard) Behind(writers *Entry) (all []*Entry) {
	g := s.groups[writers.Name]
	if g == nil || writers.member != 0 {
		return nil
	}
	for _, r := range g.members {
		if isBehind(r) {
			all = append(all, r)
		}
	}
	return all
}

// readers is what the plain readers of the name of r share; nil if nobody reads it.
func (s *Shard) readers(r *Entry) *Readers {
	if len(s.groups) == 0 {
		return nil
	}
	if g := s.groups[r.Name]; g != nil {
		return &g.readers
	}
	return nil
}

// FamilyOf is the family that a name is in use for; ok if it is in use.
func (s *Shard) FamilyOf(name string) (family uint8, ok bool) {
	if g := s.groups[name]; g != nil {
		return g.family, true
	}
	if r := s.entries[name]; r != nil && r.InUse() {
		return r.family, true
	}
	return 0, false
}

// All are the entries of the shard, in the order of their names: what a visit of them leads
// to must not hang on that of a map.
func (s *Shard) All() (all []*Entry) {
	for _, name := range slices.Sorted(maps.Keys(s.entries)) {
		all = append(all, s.entries[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.groups)) {
		all = append(all, s.groups[name].members...)
	}
	return all
}

// Len is how many entries there are.
func (s *Shard) Len() int { return len(s.entries) + s.grouped }

// Readers is what the plain readers of a name share.
type Readers struct {
	grant    *Entry        // whose grant they join; nil: none
	queue    *Entry        // where they wait; nil: none does
	turnEnds clock.Instant // of the grant
}

// forget is called when r is idle.
func (s *Readers) forget(r *Entry) {
	if s == nil {
		return
	}
	if s.grant == r {
		s.grant = nil
	}
	if s.queue == r {
		s.queue = nil
	}
}
