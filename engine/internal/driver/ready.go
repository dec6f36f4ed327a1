package driver

import (
	"github.com/pawl-lock/pawl/engine/internal/lock"
)

// FewContexts is how many contexts a user's goroutine ends itself, for example in
// Unlock. A goroutine that is started for it ends more than that, and all contexts of a
// hold that ended on an event loop or a timer. Close waits for these goroutines.
const FewContexts = 64

// Apply does what a transition has left to be done. The caller holds no lock. It may be an
// event loop or a timer, so contexts are ended by a goroutine.
func (t *Table) Apply(rd *lock.Ready) {
	if ended := rd.Ended; ended != nil {
		t.Engine.Spawn(func() { endContexts(ended) })
	}
	// Then the wire, then the verdicts: the round trip is the longer wait.
	if r := rd.Send; r != nil {
		t.submit(r)
	}
	if r := rd.Disconnected; r != nil {
		t.Recovery.Add((*entry)(r))
	}
	if r := rd.AdvanceReaders; r != nil {
		t.advanceReaders(r, rd.Err)
	}
	if r := rd.Wake; r != nil {
		ShardOf(r).transition(r, (*lock.Entry).Woken)
	}
	for a, ok := rd.NextRequest(); ok; a, ok = rd.NextRequest() {
		a.Handle.(Caller).Deliver() // it may go back to its pool
	}
	for u := rd.NextUnlock(); u != nil; u = rd.NextUnlock() {
		u.Handle.(Unlocker).Deliver()
	}
}

// advanceReaders goes on with the readers that are behind a name's writers, or fails them if there is
// a reason, and then with the writers.
func (t *Table) advanceReaders(writers *lock.Entry, why error) {
	sh := ShardOf(writers)
	sh.Lock()
	behind := sh.Locks.Behind(writers)
	sh.Unlock()
	for _, r := range behind {
		sh.transition(r, func(r *lock.Entry, rd *lock.Ready) { r.AdvanceReader(why, rd) })
	}
	sh.transition(writers, (*lock.Entry).AdvanceWriter)
}

// transition makes a transition of one of several names, each of which has its own Ready.
func (s *Shard) transition(r *lock.Entry, with func(*lock.Entry, *lock.Ready)) {
	s.do(func(rd *lock.Ready) { with(r, rd) })
}

// do makes a transition under the shard's lock, and does what that leaves to be done. It costs an
// allocation, for the Ready, so it is for what is rare.
func (s *Shard) do(transition func(rd *lock.Ready)) {
	var rd lock.Ready
	s.Lock()
	transition(&rd)
	s.finish(&rd)
}

// finish gives the lock back after transitions, and does what they left to be done.
func (s *Shard) finish(rd *lock.Ready) {
	s.Unlock()
	s.Table.Apply(rd)
}

// ApplyForUser is Apply for a caller's own goroutine, which ends a few contexts itself.
func (t *Table) ApplyForUser(rd *lock.Ready) {
	if ended := rd.Ended; ended != nil && rd.Contexts <= FewContexts {
		rd.Ended = nil
		defer t.Apply(rd) // a user's context may panic; others wait for their verdicts
		endContexts(ended)
		return
	}
	t.Apply(rd)
}

// endContexts ends the contexts of holds of one name, and notes that they were told. No lock is
// held. A panic of a user's context goes on when all others have ended.
func endContexts(ended *lock.Hold) {
	defer func() {
		sh := ShardOf(ended.Entry)
		var rd lock.Ready
		sh.Lock()
		ended.Entry.ContextsEnded(ended, &rd)
		sh.finish(&rd)
	}()
	endHolds(ended)
}

func endHolds(h *lock.Hold) {
	if h != nil {
		defer endHolds(h.NextEnded()) // even if one panics
		EndAll(h.Contexts(), h.Ending())
	}
}

// EndAll ends all of them, even if one panics.
func EndAll[C lock.Context](contexts []C, why error) {
	Each(contexts, func(c C) { c.End(why) })
}

// Each calls do with all of them, even if one panics: then the panic goes on after that.
func Each[T any](all []T, do func(T)) {
	defer func() {
		if len(all) > 0 {
			Each(all, do)
		}
	}()
	for len(all) > 0 {
		one := all[0]
		all = all[1:]
		do(one)
	}
}
