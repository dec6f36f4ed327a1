package pubsub

import (
	"slices"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/slot"
)

// Registry keeps the Channels of a Client. Each is at the endpoint of the server that
// serves its slot, or unserved, in subs without a connection, while none does.
//
// Invariants:
//
//  1. One lock guards all, because Channels go from one endpoint to another.
//  2. A Channel that moves gets Disconnected, if it was live, before it can get
//     Subscribed from its new place.
type Registry struct {
	lock     *sync.Mutex
	unserved *subs
	serve    func(slot uint16) *Endpoint
	moved    func()
}

// NewRegistry returns one without endpoints. serve names the endpoint of a slot, nil if
// there is none; it is called with the lock held. moved is called when a server says that
// channels have a better place. Neither may block.
func NewRegistry(serve func(slot uint16) *Endpoint, moved func()) *Registry {
	r := &Registry{lock: new(sync.Mutex), serve: serve, moved: moved}
	r.unserved = r.newSubs()
	return r
}

func (r *Registry) newSubs() *subs {
	s := newSubs()
	s.mu.Mutex, s.moved = r.lock, r.moved
	return s
}

// NewEndpoint returns the endpoint of a server. A silence of timeout with an answer due
// costs the connection; down is called when an attached connection has ended, on its loop,
// and must not block. refused is called by CheckAge when the server refuses channels, and not only
// for now, once a connection.
func (r *Registry) NewEndpoint(sharded bool, clock clock.Clock, timeout time.Duration, down, refused func(error)) *Endpoint {
	p := &Endpoint{subs: r.newSubs(), clock: clock, timeout: timeout, down: down, refused: refused}
	p.subs.sharded, p.subs.wake = sharded, p.wake
	return p
}

// Subscribe adds ch where its slot is served.
func (r *Registry) Subscribe(ch *Channel) {
	r.lock.Lock()
	p := r.serve(slot.Of(ch.name))
	if p == nil {
		r.unserved.subscribeLocked(ch)
		r.lock.Unlock()
		return
	}
	wake := p.subs.subscribeLocked(ch)
	r.lock.Unlock()
	if wake {
		p.wake()
	}
}

// Unsubscribe removes ch, wherever it is.
func (r *Registry) Unsubscribe(ch *Channel) {
	r.lock.Lock()
	var owner *subs
	wake := false
	if ch.topic != nil {
		owner = ch.topic.subs
		wake = owner.unsubscribeLocked(ch)
	}
	r.lock.Unlock()
	if wake { // then it has a connection, and is not unserved
		owner.wake()
	}
}

// Move takes the Channels along that are at one of these endpoints, though another, or
// none, serves their slot by now, and finds a place for those that had none:
//
//	out of the old place, into unserved   (lock)
//	Disconnected                          (no lock)
//	out of unserved, into the new place   (lock)
//	... SUBSCRIBE, its answer: Subscribed
func (r *Registry) Move(endpoints []*Endpoint) {
	var evicted []request.ChannelHandler
	var wake []*Endpoint
	r.lock.Lock()
	for _, p := range endpoints {
		if handlers := p.subs.evictLocked(r.unserved, func(slot uint16) bool { return r.serve(slot) != p }); handlers != nil {
			evicted = append(evicted, handlers...)
			wake = append(wake, p)
		}
	}
	r.lock.Unlock()
	deliver(evicted, request.Disconnected, nil, nil)

	r.lock.Lock()
	for _, t := range r.unserved.mu.topics {
		p := r.serve(t.slot)
		if p == nil {
			continue
		}
		for ch := t.first; ch != nil; ch = t.first {
			r.unserved.unsubscribeLocked(ch)
			if p.subs.subscribeLocked(ch) && !slices.Contains(wake, p) {
				wake = append(wake, p)
			}
		}
	}
	r.lock.Unlock()
	for _, p := range wake {
		p.wake()
	}
}

// Waiting returns how many names have no place.
func (r *Registry) Waiting() int {
	n, _, _ := r.unserved.counts()
	return n
}
