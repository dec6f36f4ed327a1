package driver

import (
	"github.com/pawl-lock/pawl/engine/internal/lock"
)

// FewContexts is how many contexts a user's goroutine ends itself, for example in
// Unlock. A goroutine that is started for it ends more than that, and all contexts of a
// hold that ended on an event loop or a timer. Close waits for these goroutines.
const FewContexts = 64

// Run does what a transition has left to be done. The caller holds no lock. It may be an
// event loop or a timer, so contexts are ended by a goroutine.
func (t *Table) Run(fx *lock.Effects) {
	if ended := fx.Ended; ended != nil {
		t.Engine.Spawn(func() { endContexts(ended) })
	}
	// Then the wire, then the verdicts: the round trip is the longer wait.
	if r := fx.Send; r != nil {
		t.submit(r)
	}
	if r := fx.Stalled; r != nil {
		t.Recovery.Add((*stalled)(r))
	}
	if r := fx.Forward; r != nil {
		t.letForward(r, fx.Why)
	}
	if r := fx.Wake; r != nil {
		ShardOf(r).goOn(r, (*lock.Entry).Woken)
	}
	fx.Deliver()
}

// letForward goes on with the readers that are behind a name's writers, or fails them if there is
// a reason, and then with the writers.
func (t *Table) letForward(writers *lock.Entry, why error) {
	sh := ShardOf(writers)
	sh.mu.Lock()
	behind := sh.behind(writers)
	sh.mu.Unlock()
	for _, r := range behind {
		sh.goOn(r, func(r *lock.Entry, fx *lock.Effects) { r.GoForward(why, fx) })
	}
	sh.goOn(writers, (*lock.Entry).GoAfter)
}

// goOn makes a transition of one of several names, each of which has its own Effects.
func (s *Shard) goOn(r *lock.Entry, with func(*lock.Entry, *lock.Effects)) {
	var fx lock.Effects
	s.mu.Lock()
	with(r, &fx)
	s.mu.Unlock()
	s.Table.Run(&fx)
}

// RunForUser is Run for a caller's own goroutine, which ends a few contexts itself.
func (t *Table) RunForUser(fx *lock.Effects) {
	if ended := fx.Ended; ended != nil && fx.Contexts <= FewContexts {
		fx.Ended = nil
		defer t.Run(fx) // a user's context may panic; others wait for their verdicts
		endContexts(ended)
		return
	}
	t.Run(fx)
}

// endContexts ends the contexts of holds of one name, and notes that they were told. No lock is
// held. A panic of a user's context goes on when all others have ended.
func endContexts(ended *lock.Hold) {
	defer func() {
		sh := ShardOf(ended.Entry)
		var fx lock.Effects
		sh.mu.Lock()
		ended.Entry.Told(ended, &fx)
		sh.mu.Unlock()
		sh.Table.Run(&fx)
	}()
	endHolds(ended)
}

func endHolds(h *lock.Hold) {
	if h != nil {
		defer endHolds(h.NextEnded()) // even if one panics
		endAll(h.Contexts(), h.Ending())
	}
}

func endAll(contexts []lock.Context, why error) {
	defer func() {
		if len(contexts) > 0 { // one has panicked
			endAll(contexts, why)
		}
	}()
	for len(contexts) > 0 {
		c := contexts[0]
		contexts = contexts[1:]
		c.End(why)
	}
}
