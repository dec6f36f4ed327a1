package engine

// effects is what a transition leaves to be done once the shard's lock has been
// released: ending the contexts of holds that are over, sending the next command (which
// may write a socket, or complete at once), and telling callers their results. No user
// code runs under a lock of this package.
//
// A transition that ends a hold with contexts sends nothing: the next command is chosen
// when the contexts have ended (see telling.go).
//
// An effects lives on the stack: its lists are linked through their own members, and
// nothing points back to it.
type effects struct {
	send    *resource
	stalled *resource

	acquired, lastAcquired *acquisition // with their verdicts, in order
	unlocked, lastUnlocked *unlocking

	ended    *holding // with contexts, which must end before the name goes on
	contexts int      // how many
}

// finish lists an acquisition that has its verdict.
func (fx *effects) finish(a *acquisition) {
	if a.listed {
		panic("BUG: engine: acquisition finished twice")
	}
	a.listed = true
	a.sh.eng.hookAcquired(a)
	if fx.lastAcquired == nil {
		fx.acquired = a
	} else {
		fx.lastAcquired.listedNext = a
	}
	fx.lastAcquired = a
}

// finishUnlock lists an Unlock that has its verdict.
func (fx *effects) finishUnlock(u *unlocking) {
	if fx.lastUnlocked == nil {
		fx.unlocked = u
	} else {
		fx.lastUnlocked.listedNext = u
	}
	fx.lastUnlocked = u
}

// stall hands the resource to the recovery queue.
func (fx *effects) stall(r *resource) { fx.stalled = r }

// run does it all. The caller holds no lock. It may be an event loop or a timer, so
// contexts are ended by a goroutine.
func (fx *effects) run(e *Engine) {
	if ended := fx.ended; ended != nil {
		e.exec.spawn(func() { endContexts(ended) })
	}
	// Then the wire, then the verdicts: the round trip is the longer wait.
	if r := fx.send; r != nil {
		e.submit(r)
	}
	if r := fx.stalled; r != nil {
		e.recovery.add(r)
	}
	// An acquisition may go back to its pool as soon as it is told, so read the next one first.
	for a := fx.acquired; a != nil; {
		next := a.listedNext
		a.deliver()
		a = next
	}
	for u := fx.unlocked; u != nil; {
		next := u.listedNext
		u.deliver()
		u = next
	}
}

// runForUser is run for a caller's own goroutine, which ends a few contexts itself.
func (fx *effects) runForUser(e *Engine) {
	if ended := fx.ended; ended != nil && fx.contexts <= fewContexts {
		fx.ended = nil
		defer fx.run(e) // a user's context may panic; others wait for their verdicts
		endContexts(ended)
		return
	}
	fx.run(e)
}
