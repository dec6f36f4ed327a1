package engine

import (
	"context"
	"sync"

	"github.com/pawl-lock/pawl/engine/internal/queue"
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
	all     *watches
	done    <-chan struct{}
	members queue.List[*acquisition]
	over    bool        // fired, or empty: out of groups
	stop    func() bool // of the AfterFunc, once it is there
}

// watchPlace is an acquisition's place in a group; guarded by watches.mu.
type watchPlace struct {
	group *watchGroup
	elem  queue.Elem[*acquisition]
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
	a.watch.group = g
	a.watch.elem.Value = a
	g.members.PushBack(&a.watch.elem)
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

// leave takes the acquisition out; the last one ends the group.
func (p *watchPlace) leave() {
	if p.elem.Value == nil {
		return // never joined: written before the acquisition was enqueued
	}
	w := p.group.all
	var stop func() bool
	w.mu.Lock()
	g := p.group
	g.members.Remove(&p.elem)
	if g.members.Len() == 0 && !g.over {
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
	for {
		a, ok := g.members.PopFront()
		if !ok {
			break
		}
		w.mu.Unlock()
		a.cancel(err)
		w.mu.Lock()
	}
	w.mu.Unlock()
}
