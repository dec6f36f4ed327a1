package lock

import (
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// Origin is where a request comes from, for those who look at it: the engine fills it in.
type Origin struct {
	Stack []uintptr // the program counters of the call; nil: not recorded
	Under Context   // the innermost hold that its context carried; nil: none
}

// waitsFrom notes when a request began to wait. A head whose first command is out does not wait yet:
// it is noted when that is refused.
func (a *Request) waitsFrom(at clock.Instant) { a.since = milliseconds(at) }

// until is the time from then to now. A shortInstant tells no more than 49 days apart.
func (t shortInstant) until(now clock.Instant) time.Duration {
	return time.Duration(milliseconds(now)-t) * time.Millisecond
}

// Waited is how long it has waited. It is called under the shard's lock, as all methods below.
func (a *Request) Waited(now clock.Instant) time.Duration {
	if a.since == 0 {
		return 0 // its first command is out
	}
	return a.since.until(now)
}

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

// Waiters is how many wait in the queue of the name.
func (r *Entry) Waiters() int { return r.waiters.Len() }
