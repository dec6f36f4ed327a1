package engine

// effects is what a transition leaves to be done after the shard's lock is given
// up: sending the next command, which may write a socket or complete at once, and
// telling users. Nothing of a user runs under a lock of this package.
//
// An effects lives on the stack: what it lists is chained through the listed
// themselves, and nothing points back to it.
type effects struct {
	send    *resource
	stalled *resource

	acquired, lastAcquired *acquisition // with their verdicts, in order
	unlocked, lastUnlocked *unlocking
	cancelled              []func() // contexts of holds that ended
}

// finish lists an acquisition that has its verdict.
func (fx *effects) finish(a *acquisition) {
	if a.listed {
		panic("BUG: engine: acquisition finished twice")
	}
	a.listed = true
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

// run does it all. The caller holds no lock.
func (fx *effects) run(e *Engine) {
	// First the wire, then the users: the round trip is the longer wait.
	if r := fx.send; r != nil {
		e.submit(r)
	}
	if r := fx.stalled; r != nil {
		e.recovery.add(r)
	}
	// Who has been told may be gone at once, back to a pool: the next one first.
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
	for _, cancel := range fx.cancelled {
		cancel()
	}
}
