package engine

import (
	"context"
	"sync"
)

// watches lets one context.AfterFunc serve all futures that have the same Done
// channel: cancelling a context that 100,000 pending futures share runs in one
// goroutine, and costs each of them nothing while it lives.
//
// Invariants:
//
//  1. mu is taken without any other lock, and no method of a context is called
//     under it: contexts may be the user's own.
//  2. A group is in groups as long as it has members and has not fired.
type watches struct {
	mu     sync.Mutex
	groups map[<-chan struct{}]*watchGroup
}

type watchGroup struct {
	all   *watches
	done  <-chan struct{}
	first *acquisition // the members, linked by their watchPlaces
	over  bool         // fired, or empty: out of groups
	stop  func() bool  // of the AfterFunc, once it is there
}

// watchPlace is an acquisition's place in a group; guarded by watches.mu, except
// that group is set once, before the acquisition is enqueued. Whether it is a member
// still is acquisition.watched.
type watchPlace struct {
	group      *watchGroup
	next, prev *acquisition
}

func (g *watchGroup) add(a *acquisition) {
	a.watch, a.watched = watchPlace{group: g, next: g.first}, true
	if g.first != nil {
		g.first.watch.prev = a
	}
	g.first = a
}

func (g *watchGroup) remove(a *acquisition) {
	p := &a.watch
	if !a.watched {
		return
	}
	if p.prev != nil {
		p.prev.watch.next = p.next
	} else {
		g.first = p.next
	}
	if p.next != nil {
		p.next.watch.prev = p.prev
	}
	p.next, p.prev, a.watched = nil, nil, false
}

// join makes ctx cancel a, which may not be enqueued yet.
func (w *watches) join(ctx context.Context, a *acquisition) {
	done := ctx.Done()
	if done == nil {
		return
	}
	w.mu.Lock()
	g := w.groups[done]
	first := g == nil
	if first {
		g = &watchGroup{all: w, done: done}
		if w.groups == nil {
			w.groups = make(map[<-chan struct{}]*watchGroup)
		}
		w.groups[done] = g
	}
	g.add(a)
	w.mu.Unlock()
	if !first {
		return
	}
	// fire runs on a goroutine of its own, even if ctx has ended already.
	stop := context.AfterFunc(ctx, func() { g.fire(ctx) })
	w.mu.Lock()
	g.stop = stop
	over := g.over
	w.mu.Unlock()
	if over {
		stop() // the last member left meanwhile, and had nothing to stop
	}
}

// leaveWatch takes the acquisition out of its group; the last one ends the group.
func (a *acquisition) leaveWatch() {
	g := a.watch.group
	if g == nil {
		return
	}
	w := g.all
	var stop func() bool
	w.mu.Lock()
	g.remove(a)
	if g.first == nil && !g.over {
		g.over = true
		delete(w.groups, g.done)
		stop = g.stop
	}
	w.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// fire cancels the members. One that ends by itself meanwhile is not cancelled
// twice: cancel looks under the shard's lock.
func (g *watchGroup) fire(ctx context.Context) {
	err := notAcquired(ctx)
	w := g.all
	w.mu.Lock()
	if !g.over {
		g.over = true
		delete(w.groups, g.done) // whoever joins now makes a new group
	}
	for g.first != nil {
		a := g.first
		g.remove(a)
		w.mu.Unlock()
		a.cancel(err)
		w.mu.Lock()
	}
	w.mu.Unlock()
}
