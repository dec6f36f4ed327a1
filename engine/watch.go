package engine

import (
	"context"
	"sync"

	"github.com/pawl-lock/pawl/engine/internal/reason"
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
type watches[W watched[W]] struct {
	mu     sync.Mutex
	groups map[<-chan struct{}]*watchGroup[W]
}

// watched is what a context cancels: an acquisition, or a gathering.
type watched[W watched[W]] interface {
	comparable
	watchPlace() *watchPlace[W]
	// cancel gives it up unless it has ended; it reports whether it did.
	cancel(reason.Stop) bool
}

type watchGroup[W watched[W]] struct {
	all   *watches[W]
	first W           // the members, linked by their watchPlaces
	over  bool        // fired, or empty: out of groups
	stop  func() bool // of the AfterFunc
	ctx   askedOnce   // whose Done the members share
}

// watchPlace is a member's place in a group; guarded by watches.mu, except that group is
// set once, before the member starts.
type watchPlace[W watched[W]] struct {
	group      *watchGroup[W]
	next, prev W // one that has left is its own neighbour
}

func (g *watchGroup[W]) add(w W) {
	var none W
	*w.watchPlace() = watchPlace[W]{group: g, next: g.first}
	if g.first != none {
		g.first.watchPlace().prev = w
	}
	g.first = w
}

func (g *watchGroup[W]) remove(w W) {
	var none W
	p := w.watchPlace()
	if p.prev == w {
		return
	}
	if p.prev != none {
		p.prev.watchPlace().next = p.next
	} else {
		g.first = p.next
	}
	if p.next != none {
		p.next.watchPlace().prev = p.prev
	}
	p.next, p.prev = w, w
}

// join makes ctx cancel w, which has not started yet.
func (all *watches[W]) join(ctx context.Context, w W) {
	done := ctx.Done()
	if done == nil {
		return
	}
	all.mu.Lock()
	g := all.groups[done]
	if g != nil {
		g.add(w)
	}
	all.mu.Unlock()
	if g != nil {
		return
	}
	// Nobody else can join before the AfterFunc is there: setting it up asks ctx, which may
	// panic, and a group without it would cancel nobody.
	g = &watchGroup[W]{all: all, ctx: askedOnce{Context: ctx, done: done}}
	g.add(w)
	// fire runs on a goroutine of its own, even if ctx has ended already.
	stop := context.AfterFunc(&g.ctx, func() { g.fire(ctx) })
	all.mu.Lock()
	defer all.mu.Unlock()
	g.stop = stop
	if all.groups == nil {
		all.groups = make(map[<-chan struct{}]*watchGroup[W])
	}
	if !g.over && all.groups[done] == nil {
		all.groups[done] = g
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

// leave takes w out of its group; the last one ends the group.
func (p *watchPlace[W]) leave(w W) {
	g := p.group
	if g == nil {
		return
	}
	var none W
	var stop func() bool
	g.all.mu.Lock()
	g.remove(w)
	if g.first == none && !g.over {
		g.endLocked()
		stop = g.stop
	}
	g.all.mu.Unlock()
	if stop != nil {
		stop()
	}
}

func (g *watchGroup[W]) endLocked() {
	g.over = true
	if g.all.groups[g.ctx.done] == g {
		delete(g.all.groups, g.ctx.done)
	}
}

// fire cancels the members. One that ends by itself meanwhile is not cancelled
// twice: cancel looks under the lock of the member.
func (g *watchGroup[W]) fire(ctx context.Context) {
	s := stopOf(ctx)
	var none W
	all := g.all
	all.mu.Lock()
	if !g.over {
		g.endLocked() // a future that joins now makes a new group
	}
	for g.first != none {
		w := g.first
		g.remove(w)
		all.mu.Unlock()
		w.cancel(s)
		all.mu.Lock()
	}
	all.mu.Unlock()
}
