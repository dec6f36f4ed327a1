// Package ctxwatch gives up what waits when the context of its caller ends. It calls the
// methods of contexts, which may be the user's own, on no event loop and under no lock.
package ctxwatch

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// Watches lets one context.AfterFunc serve all futures that have the same Done
// channel: cancelling a context that 100,000 pending futures share runs in one
// goroutine, and costs each of them nothing while it lives.
//
// Invariants:
//
//  1. mu is taken without any other lock, and no method of a context is called
//     under it: contexts may be the user's own.
//  2. A group is in groups from when its AfterFunc is there, as long as it has members and
//     has not fired; unless another one with the same Done was there first.
type Watches[W Waiter[W]] struct {
	// AfterFunc is the world's. It is set before the first Join.
	AfterFunc func(context.Context, func()) (stop func() bool)

	mu     sync.Mutex
	groups map[<-chan struct{}]*group[W]
}

// Waiter is what a context cancels: an acquisition, or that of many locks.
type Waiter[W Waiter[W]] interface {
	comparable
	// WatchSlot is its place in a group of those that share a context.
	WatchSlot() *Slot[W]
	// GiveUp cancels it unless it has ended; it reports whether it did.
	GiveUp(lockerr.Cancel) bool
}

type group[W Waiter[W]] struct {
	all   *Watches[W]
	first W           // the members, linked by their Places
	over  bool        // fired, or empty: out of groups
	stop  func() bool // of the AfterFunc
	ctx   askedOnce   // whose Done the members share
}

// Slot is a member's place in a group; guarded by Watches.mu, except that group is
// set once, before the member starts.
type Slot[W Waiter[W]] struct {
	group      *group[W]
	next, prev W // one that has left is its own neighbour
}

func (g *group[W]) add(w W) {
	var none W
	*w.WatchSlot() = Slot[W]{group: g, next: g.first}
	if g.first != none {
		g.first.WatchSlot().prev = w
	}
	g.first = w
}

func (g *group[W]) remove(w W) {
	var none W
	p := w.WatchSlot()
	if p.prev == w {
		return
	}
	if p.prev != none {
		p.prev.WatchSlot().next = p.next
	} else {
		g.first = p.next
	}
	if p.next != none {
		p.next.WatchSlot().prev = p.prev
	}
	p.next, p.prev = w, w
}

// Join makes ctx cancel w, which has not started yet.
func (all *Watches[W]) Join(ctx context.Context, w W) {
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
	g = &group[W]{all: all, ctx: askedOnce{Context: ctx, done: done}}
	g.add(w)
	// fire runs on a goroutine of its own, even if ctx has ended already.
	stop := all.AfterFunc(&g.ctx, func() { g.fire(ctx) })
	all.mu.Lock()
	defer all.mu.Unlock()
	g.stop = stop
	if all.groups == nil {
		all.groups = make(map[<-chan struct{}]*group[W])
	}
	if !g.over && all.groups[done] == nil {
		all.groups[done] = g
	}
}

// Len is how many groups there are.
func (all *Watches[W]) Len() int {
	all.mu.Lock()
	defer all.mu.Unlock()
	return len(all.groups)
}

// CancelOf is the end of a context. No lock may be held: its methods may be the user's, and a broken one may
// say that it has ended, and not why.
func CancelOf(ctx context.Context) lockerr.Cancel {
	return lockerr.Cancel{Cause: cmp.Or(context.Cause(ctx), context.Canceled), TimedOut: errors.Is(ctx.Err(), context.DeadlineExceeded)}
}

// CancelOrPanic is CancelOf of a context that a caller has waited for. If the context panics, so does the caller:
// then gone is called first, since nobody waits any more.
func CancelOrPanic(ctx context.Context, gone func()) lockerr.Cancel {
	asked := false
	defer func() {
		if !asked {
			gone()
		}
	}()
	s := CancelOf(ctx)
	asked = true
	return s
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

// Leave takes w out of its group; the last one ends the group.
func (p *Slot[W]) Leave(w W) {
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

func (g *group[W]) endLocked() {
	g.over = true
	if g.all.groups[g.ctx.done] == g {
		delete(g.all.groups, g.ctx.done)
	}
}

// fire cancels the members. One that ends by itself meanwhile is not cancelled
// twice: GiveUp looks under the lock of the member.
func (g *group[W]) fire(ctx context.Context) {
	s := CancelOf(ctx)
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
		w.GiveUp(s)
		all.mu.Lock()
	}
	all.mu.Unlock()
}
