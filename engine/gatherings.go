package engine

import (
	"context"
	"sync"
)

// gatherings are an engine's: those that were refused once, and the contexts of all that are
// futures. One that pauses, or waits for a lock of another engine, would not hear otherwise
// that this one is closing; and its Wait is on the wheel of one of them.
type gatherings struct {
	watches watches[*gathering]

	mu     sync.Mutex
	closed bool
	listed map[*gathering]struct{}
}

// add lists one, unless the engine is closing.
func (all *gatherings) add(g *gathering) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.closed {
		return false
	}
	if all.listed == nil {
		all.listed = make(map[*gathering]struct{})
	}
	all.listed[g] = struct{}{}
	return true
}

func (all *gatherings) remove(g *gathering) {
	all.mu.Lock()
	delete(all.listed, g)
	all.mu.Unlock()
}

// close fails those that are listed, and whoever is to be from now on.
func (all *gatherings) close() {
	all.mu.Lock()
	all.closed = true
	listed := all.listed
	all.listed = nil
	all.mu.Unlock()
	for g := range listed {
		g.cancel(stop{cause: ErrClosed})
	}
}

// list lets all of its engines end the gathering; it reports whether none has closed. The
// lock that it waits for hears of one engine only.
func (g *gathering) list() bool {
	open := true
	for _, e := range g.on {
		open = e.gatherings.add(g) && open
	}
	g.mu.Lock()
	over := g.stage == stageOver
	g.mu.Unlock()
	if over { // cancelled meanwhile: end may have been here first
		g.unlist()
	}
	return open
}

func (g *gathering) unlist() {
	for _, e := range g.on {
		e.gatherings.remove(g)
	}
}

//lint:ignore U1000 watches calls it, through its constraint
func (g *gathering) watchPlace() *watchPlace[*gathering] { return &g.watch }

// The methods below make a gathering the source of its future.

func (g *gathering) executor() *executor { return &g.home.exec }

func (g *gathering) abandon() { g.cancel(stop{cause: errAbandoned}) }

func (g *gathering) drop(m *MultiHold) { m.unlockAll(false) }

// wait is the synchronous half: it waits for the result or for the context.
func (g *gathering) wait(ctx context.Context, done <-chan struct{}) (*MultiHold, error) {
	ended := g.fut.Done()
	select {
	case <-ended:
	case <-done:
		through := false
		defer func() {
			if !through { // the context is the user's own, and has panicked
				g.fut.Abandon()
			}
		}()
		s := stopOf(ctx)
		through = true
		g.cancel(s)
		<-ended
	}
	return g.fut.Result()
}
