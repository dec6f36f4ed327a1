package web

import (
	"container/list"
	"sync"
	"time"
)

const (
	// maxEvents is how many events of one lock are kept, maxTrails of how many locks, if their names have no more
	// than maxNames bytes.
	maxEvents = 32
	maxTrails = 20_000
)

// event is what happened to a lock between two looks.
type event struct {
	At     time.Time `json:"at"`
	What   string    `json:"what"` // "held", "free", "waiting", "unlocked"
	Holder string    `json:"holder,omitempty"`
	From   int       `json:"from,omitempty"` // of "waiting"
	To     int       `json:"to,omitempty"`
	Left   int64     `json:"left_ms,omitempty"` // of "free": what was left of the lease when it was seen last
}

// history is what happened to locks lately. When there are too many, those are forgotten to which nothing
// has happened for the longest time.
type history struct {
	mu     sync.Mutex
	trails map[string]*list.Element // by the id of the lock
	order  list.List                // of *trail; the latest event is at the back
	names  int                      // bytes
}

type trail struct {
	id, name string
	events   []event // the oldest first
}

func (h *history) add(id, name string, e event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.trails == nil {
		h.trails = make(map[string]*list.Element)
	}
	at := h.trails[id]
	if at == nil {
		h.names += len(name)
		for len(h.trails) >= maxTrails || h.names > maxNames && len(h.trails) > 0 {
			oldest := h.order.Remove(h.order.Front()).(*trail)
			delete(h.trails, oldest.id)
			h.names -= len(oldest.name)
		}
		at = h.order.PushBack(&trail{id: id, name: name})
		h.trails[id] = at
	}
	h.order.MoveToBack(at)
	t := at.Value.(*trail)
	if len(t.events) == maxEvents {
		t.events = t.events[:copy(t.events, t.events[1:])]
	}
	t.events = append(t.events, e)
}

// of returns what happened to a lock, the latest first, and its name.
func (h *history) of(id string) (name string, events []event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.trails[id]
	if at == nil {
		return "", nil
	}
	t := at.Value.(*trail)
	for i := len(t.events) - 1; i >= 0; i-- {
		events = append(events, t.events[i])
	}
	return t.name, events
}

// note compares two looks at one lock; a row is nil if the lock was not there.
func (h *history) note(before, after *row, now time.Time) {
	switch {
	case after == nil:
		e := event{At: now, What: "free"}
		if len(before.holders) > 0 {
			e.Holder = shown(before.holders[0], maxClaim)
		}
		if !before.lease.IsZero() {
			e.Left = max(before.lease.Sub(now).Milliseconds(), 0)
		}
		h.add(before.id, before.name, e)
		return
	case before == nil || !shares(before.holders, after.holders):
		e := event{At: now, What: "held"}
		if len(after.holders) > 0 {
			e.Holder = shown(after.holders[0], maxClaim)
		}
		h.add(after.id, after.name, e)
	}
	was := 0
	if before != nil {
		was = before.waiting
	}
	if was != after.waiting {
		h.add(after.id, after.name, event{At: now, What: "waiting", From: was, To: after.waiting})
	}
}
