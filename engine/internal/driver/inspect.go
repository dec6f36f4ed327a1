package driver

import (
	"encoding/hex"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/counter"
	"github.com/pawl-lock/pawl/engine/internal/inspect"
	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/clock"
)

const (
	// maxLooked bounds the entries of a shard that are looked at for one question, and maxListed the uses
	// of one name: a shard's lock is held meanwhile.
	maxLooked = 4096
	maxListed = 100
)

// Use is a hold of this engine, or a wait, as a look found it.
type Use struct {
	Held     bool
	Kind     string
	Owner    script.Owner // of a hold
	Since    time.Duration
	Renewals int
	Depth    int
	Stack    []uintptr    // where it was asked for, if that was recorded
	Under    lock.Context // of a wait: the innermost hold that its caller's context carried
}

// NameUses are those of one name. Waiting counts the waits, those that are not listed included.
type NameUses struct {
	Name    string
	Waiting int
	Uses    []Use
}

// Note remembers where a hold was asked for. The caller holds the lock.
func (s *Shard) Note(h *lock.Hold, o *lock.Origin) {
	if s.origins == nil {
		s.origins = make(map[*lock.Hold]*lock.Origin)
	}
	s.origins[h] = o
}

// Forget forgets it. The caller holds the lock.
func (s *Shard) Forget(h *lock.Hold) { delete(s.origins, h) }

// Busy reports whether the engine has any name, and how many acquisitions have ended so far.
func (t *Table) Busy() (now bool, sofar uint64) {
	for s := range t.locked {
		now = now || s.len() > 0
		sofar += s.Locks.Count.Acquired + s.Locks.Count.NotAcquired
	}
	return now, sofar
}

// OldestHold is how long the oldest hold has been held, by the millisecond; 0 if there is none. It looks at each.
func (t *Table) OldestHold() (age time.Duration) {
	for s := range t.locked {
		now := s.Now()
		older := func(h *lock.Hold) bool {
			age = max(age, h.Held(now))
			return true
		}
		s.Locks.Each(func(r *lock.Entry) { r.EachHold(older) })
	}
	return age
}

// Answer adds to an answer what the engine has of the names that a question is about. more are waits that the table does not
// know; carried are the holds that a context carries. Anybody may ask, with a pattern that takes a tenth of a millisecond
// for each of 100,000 names: so it stops when it is late.
func (t *Table) Answer(a *inspect.Answer, q *inspect.Question, late func() bool, more []NameUses, carried func(lock.Context) []inspect.Carried) {
	text := string(q.Text)
	match := func(name string) bool {
		return !late() && (q.About != inspect.AboutPattern || inspect.Match(text, name))
	}
	add := func(n NameUses) {
		switch q.About {
		case inspect.AboutName:
			n.Name = ""
		case inspect.AboutWaits:
			if n.Uses = waitsOf(n.Uses); len(n.Uses) == 0 {
				return
			}
		}
		a.Add(n.named(carried))
	}
	switch q.About {
	case inspect.AboutName:
		match = func(name string) bool { return name == text }
		add(t.usesOf(text, t.Client.Route(text)))
	case inspect.AboutPattern:
		a.More += t.eachName(match, false, add)
	case inspect.AboutWaits:
		t.eachName(match, true, add)
	}
	of := make(map[string]*NameUses)
	var names []string
	for _, w := range more {
		switch n := of[w.Name]; {
		case n == nil && match(w.Name):
			of[w.Name], names = &w, append(names, w.Name)
		case n != nil:
			if n.Waiting += w.Waiting; len(n.Uses) < maxListed {
				n.Uses = append(n.Uses, w.Uses...)
			}
		}
	}
	for _, name := range names {
		if q.About == inspect.AboutPattern {
			of[name].Uses = nil
		}
		add(*of[name])
	}
}

// waitsOf are the waits whose callers hold something, and the longest of the others.
func waitsOf(uses []Use) []Use {
	plain := false
	return slices.DeleteFunc(uses, func(u Use) bool {
		if u.Held || u.Under == nil && plain {
			return true
		}
		plain = plain || u.Under == nil
		return false
	})
}

// named is what an answer says of a name.
func (n *NameUses) named(carried func(lock.Context) []inspect.Carried) inspect.Name {
	is := inspect.Name{Name: []byte(n.Name), Waiting: n.Waiting}
	for _, u := range n.Uses {
		one := inspect.Use{
			Held: u.Held, Kind: u.Kind, Millis: u.Since.Milliseconds(), Renewals: u.Renewals, Depth: u.Depth, Site: inspect.Site(u.Stack),
		}
		if u.Held {
			one.Owner = u.Owner.String()
			if u.Kind == kind.Permit.String() {
				ids := u.Owner.Permits()
				one.Owner, one.Size = hex.EncodeToString(ids[0][:]), len(ids)
			}
		}
		if u.Under != nil {
			one.Under = carried(u.Under)
		}
		is.Uses = append(is.Uses, one)
	}
	return is
}

// usesOf are the uses of one name, holds first.
func (t *Table) usesOf(name string, route uint64) NameUses {
	s := t.Shard(route)
	s.Lock()
	defer s.Unlock()
	n := NameUses{Name: name}
	for _, r := range s.Locks.Of(name, maxLooked) {
		s.addHolds(&n, r, maxListed)
	}
	for _, r := range s.Locks.Of(name, maxLooked) {
		s.addWaits(&n, r, maxListed)
	}
	s.addCounts(&n, maxListed)
	return n
}

// eachName visits the names of the engine that match, with their first holds, one of each owner; with
// waits, also with their waits. It visits nothing under a lock, and returns how many entries it has not
// looked at because a shard has too many.
func (t *Table) eachName(match func(name string) bool, waits bool, visit func(NameUses)) (more int) {
	most := 0
	if waits {
		most = maxListed
	}
	for i := range t.shards {
		s := &t.shards[i]
		s.Lock()
		names, left := s.Locks.Names(maxLooked)
		more += left
		s.Unlock()
		for _, name := range names {
			if !match(name) {
				continue
			}
			s.Lock()
			n := NameUses{Name: name}
			for _, r := range s.Locks.Of(name, maxLooked) {
				s.addHolds(&n, r, 1)
				s.addWaits(&n, r, most)
			}
			s.Unlock()
			if len(n.Uses) > 0 || n.Waiting > 0 {
				visit(n)
			}
		}
	}
	return more
}

func (s *Shard) addHolds(n *NameUses, r *lock.Entry, most int) {
	now := s.Now()
	r.EachHold(func(h *lock.Hold) bool {
		if len(n.Uses) >= most {
			return false
		}
		u := Use{
			Held: true, Kind: kind.Kind(h.Kind).String(), Owner: OwnerOf(r, h.Kind, h.ID),
			Since: h.Held(now), Renewals: h.Renewals(), Depth: h.Depth(),
		}
		if o := s.origins[h]; o != nil {
			u.Stack = o.Stack
		}
		n.Uses = append(n.Uses, u)
		return true
	})
}

func (s *Shard) addWaits(n *NameUses, r *lock.Entry, most int) {
	now, looked := s.Now(), 0
	r.EachWaiter(func(a *lock.Request) bool {
		looked++
		x := a.Extra()
		if x != nil && x.Quorum {
			return looked < maxLooked // not it waits, but the RedLock, which its engine knows
		}
		if n.Waiting++; len(n.Uses) >= most {
			return looked < maxLooked
		}
		u := Use{Kind: kind.Kind(a.Kind).String(), Since: a.Waited(now)}
		if x != nil && x.Origin != nil {
			u.Stack, u.Under = x.Origin.Stack, x.Origin.Under
		}
		n.Uses = append(n.Uses, u)
		return looked < maxLooked
	})
}

// addCounts adds the waits of semaphores and latches. Their permits have no owner.
func (s *Shard) addCounts(n *NameUses, most int) {
	now := s.Now()
	for k := range counter.Kind(counter.Kinds) {
		c := s.counts[CounterKey{n.Name, k}]
		if c == nil {
			continue
		}
		c.core.EachWaiter(func(op *counter.Op) bool {
			if n.Waiting++; len(n.Uses) < most {
				n.Uses = append(n.Uses, Use{Kind: [counter.Kinds]string{"semaphore", "latch"}[k], Since: waited(op, now)})
			}
			return n.Waiting < maxLooked
		})
	}
}

// waited is how long an operation has waited.
func waited(op *counter.Op, now clock.Instant) time.Duration { return now.Sub(op.Since) }
