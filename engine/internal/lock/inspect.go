package lock

import (
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// What is for those who only look. All is called under the shard's lock.

// Held is how long a hold has lasted.
func (h *Hold) Held(now clock.Instant) time.Duration { return h.since.until(now) }

// Renewals is how often its grant was renewed: 65,535 mean that or more.
func (h *Hold) Renewals() int { return int(h.renewals) }

// Depth is how often it is held: once, and once more for each re-entry.
func (h *Hold) Depth() int { return int(h.innermost().count) }

// EachHold visits the outermost live holds of the name, until visit returns false.
func (r *Entry) EachHold(visit func(*Hold) bool) {
	switch {
	case r.hold == nil:
	case r.hold.joined == nil:
		if r.hold.state == live {
			visit(r.hold)
		}
	default:
		for _, h := range r.hold.joined.holds {
			if h.state == live && !visit(h) {
				return
			}
		}
	}
}

// EachWaiter visits the requests that wait in Lock, until visit returns false: first those that re-enter a
// hold of the name and wait for their turn.
func (r *Entry) EachWaiter(visit func(*Request) bool) {
	more := true
	r.EachHold(func(h *Hold) bool {
		for ; h != nil; h = h.child {
			if h.extra == nil {
				continue
			}
			for a := range h.extra.children.All() {
				if more = visit(a); !more {
					return false
				}
			}
		}
		return true
	})
	if !more {
		return
	}
	for a := range r.waiters.All() {
		if !visit(a) {
			return
		}
	}
}

// Of are the entries of a name, as many as that at most: the one that all share, and those in its group.
func (s *Shard) Of(name string, most int) (all []*Entry) {
	if r := s.entries[name]; r != nil {
		all = append(all, r)
	}
	if g := s.groups[name]; g != nil {
		all = append(all, g.members[:min(len(g.members), most)]...)
	}
	return all
}

// Each visits the entries of the shard, in no order.
func (s *Shard) Each(visit func(*Entry)) {
	for _, r := range s.entries {
		visit(r)
	}
	for _, g := range s.groups {
		for _, r := range g.members {
			visit(r)
		}
	}
}

// Names are the names of the shard, as many as that at most, and how many more there are.
func (s *Shard) Names(most int) (names []string, more int) {
	names = make([]string, 0, min(s.Len(), most))
	for name := range s.entries {
		names = append(names, name)
		if len(names) == most {
			break
		}
	}
	all := len(s.entries)
	for name := range s.groups {
		if _, counted := s.entries[name]; counted {
			continue
		}
		if all++; len(names) < most {
			names = append(names, name)
		}
	}
	return names, all - len(names)
}

// Waited is how long it has waited. It is called under the shard's lock, as all methods below.
func (a *Request) Waited(now clock.Instant) time.Duration {
	if a.since == 0 {
		return 0 // its first command is out
	}
	return a.since.until(now)
}

// View is what a name shows to those who only look: reports and tests.
type View struct {
	What          CommandKind // of the command in flight
	Held          Blocked
	LastAttempt   LastAttempt
	Refusals      uint8 // in a row
	Depth         int   // of the hold; 0: there is none
	Waiters       int
	Attempts      uint16 // of the first of them
	Compensations int
	InDoubt       int64 // the owner of the latest compensation
	Head          HeadView
	Channel       ChannelView
}

// HeadView is what the head of a subscription does; "" without a subscription.
type HeadView string

// The states.
const (
	Awake   HeadView = "awake" // its head tries, or may
	Asleep  HeadView = "asleep"
	Lingers HeadView = "lingers" // there is none
)

// ChannelView is what is known of the channel of releases; "": it is not asked for.
type ChannelView string

// The states.
const (
	Asked ChannelView = "asked"
	Heard ChannelView = "heard" // the server has confirmed the subscription
)

// View is called under the shard's lock.
func (r *Entry) View() View {
	v := View{What: r.Cmd.Action, Held: r.blocked, LastAttempt: r.lastAttempt, Refusals: uint8(r.refused), Waiters: r.waiters.Len()}
	if r.hold != nil {
		v.Depth = r.hold.Depth()
	}
	if a, ok := r.waiters.Front(); ok {
		v.Attempts = a.Attempts
	}
	for d := r.compensations; d != nil; d = d.next {
		v.Compensations++
	}
	if r.compensations != nil {
		v.InDoubt = r.compensations.ID
	}
	switch w := r.sub; {
	case w == nil:
	case w.Lingers():
		v.Head = Lingers
	case w.Ready():
		v.Head = Awake
	default:
		v.Head = Asleep
	}
	switch w := r.sub; {
	case w == nil || !w.Listening():
	case w.Hears():
		v.Channel = Heard
	default:
		v.Channel = Asked
	}
	return v
}

// Free are the entries that are ready for use again.
func (s *Shard) Free() []*Entry { return s.free }

// Find returns the entry that all requests of a name share, nil if there is none.
func (s *Shard) Find(name string) *Entry { return s.entries[name] }

// Extends reports whether an Extend of the hold is under way.
func (h *Hold) Extends() bool { return h.rare().extend != nil }
