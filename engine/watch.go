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
//  2. A group is in groups from when its AfterFunc is there, as long as it has members and
//     has not fired; unless another one with the same Done was there first.
type watches struct {
	mu     sync.Mutex
	groups map[<-chan struct{}]*watchGroup
}

type watchGroup struct {
	all   *watches
	first *acquisition // the members, linked by their watchPlaces
	over  bool         // fired, or empty: out of groups
	stop  func() bool  // of the AfterFunc
	ctx   askedOnce    // whose Done the members share
}

// watchPlace is an acquisition's place in a group; guarded by watches.mu, except
// that group is set once, before the acquisition is enqueued. acquisition.watched says
// whether it is still a member.
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
	if g != nil {
		g.add(a)
	}
	w.mu.Unlock()
	if g != nil {
		return
	}
	// Nobody else can join before the AfterFunc is there: setting it up asks ctx, which may
	// panic, and a group without it would cancel nobody.
	g = &watchGroup{all: w, ctx: askedOnce{Context: ctx, done: done}}
	g.add(a)
	// fire runs on a goroutine of its own, even if ctx has ended already.
	stop := context.AfterFunc(&g.ctx, func() { g.fire(ctx) })
	w.mu.Lock()
	defer w.mu.Unlock()
	g.stop = stop
	if w.groups == nil {
		w.groups = make(map[<-chan struct{}]*watchGroup)
	}
	if !g.over && w.groups[done] == nil {
		w.groups[done] = g
	}
}

// askedOnce is a context of the user's as context.AfterFunc sees it. The stop of an
// AfterFunc asks the context for what was asked before, but it is called on an event
// loop, where no code of the user may run. So it gets the first answer. For the same
// reason a method AfterFunc that the context may have is not used.
type askedOnce struct {
	context.Context
	done       <-chan struct{}
	key, value any // the first key that was asked for; package context has one
}

func (c *askedOnce) Done() <-chan struct{} { return c.done }

func (c *askedOnce) Value(key any) any {
	switch c.key {
	case nil:
		c.key, c.value = key, c.Context.Value(key)
	case key:
	default:
		return c.Context.Value(key)
	}
	return c.value
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
		g.endLocked()
		stop = g.stop
	}
	w.mu.Unlock()
	if stop != nil {
		stop()
	}
}

func (g *watchGroup) endLocked() {
	g.over = true
	if g.all.groups[g.ctx.done] == g {
		delete(g.all.groups, g.ctx.done)
	}
}

// fire cancels the members. One that ends by itself meanwhile is not cancelled
// twice: cancel looks under the shard's lock.
func (g *watchGroup) fire(ctx context.Context) {
	s := stopOf(ctx)
	w := g.all
	w.mu.Lock()
	if !g.over {
		g.endLocked() // a future that joins now makes a new group
	}
	for g.first != nil {
		a := g.first
		g.remove(a)
		w.mu.Unlock()
		a.cancel(s)
		w.mu.Lock()
	}
	w.mu.Unlock()
}
