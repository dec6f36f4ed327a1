package engine

// When a hold ends, the contexts that were made from it must end before anybody else
// can get the lock. Ending a context takes longer the larger the tree below it is, and
// calls methods of its parent, which may be a user's own context. So it is done without
// a lock, and never on an event loop or a timer.
//
// Invariants:
//
//  1. From the end of a hold with contexts until told, its resource counts it
//     (telling), and next chooses nothing for the name: no release, no debt, no
//     acquire of the next waiter. It is not enough that each transition ends the
//     contexts before it sends, because another one may choose the release meanwhile:
//
//     Unlock's goroutine                        event loop
//     an Extend is in flight; the hold ends
//     ends the contexts ...                     reply of the Extend: next
//     ... still does                            release
//
//  2. The contexts of a hold that has ended belong to the goroutine that ends them;
//     nothing else touches the map.
//  3. Done of a hold is closed when no context of it or of its re-entries is left.
//     So the Dones of a name wait for all that are being told (untold).

// fewContexts is how many contexts a user's goroutine ends itself, for example in
// Unlock. A goroutine that is started for it ends more than that, and all contexts of a
// hold that ended on an event loop or a timer. Close waits for these goroutines.
const fewContexts = 64

// ender is what ends with a hold, before its release: a context, or a MultiHold.
type ender interface {
	// end returns when everything that was made from it has ended. It is called once, with
	// no lock held.
	end(why error)
}

// announce arranges that the contexts and Done of h learn of its end. The caller holds the shard's lock.
func (h *holding) announce(fx *effects) {
	r := h.res
	n := 0
	if h.extra != nil {
		n = len(h.extra.contexts)
	}
	if n == 0 && r.telling == 0 {
		h.closeDone()
		return
	}
	x, sh := h.more(), r.sh
	if sh.untold == nil {
		sh.untold = make(map[*resource][]*holding)
	}
	sh.untold[r] = append(sh.untold[r], h)
	x.untold = true
	if n > 0 {
		r.telling++
		x.nextEnded, fx.ended = fx.ended, h
		fx.contexts += n
	}
}

// endContexts ends the contexts of holds of one name, and notes that they were told. No lock is
// held. A panic of a user's context goes on when all others have ended.
func endContexts(ended *holding) {
	through := false
	defer func() {
		if !through {
			endContexts(ended)
		}
	}()
	for h := ended; h != nil; h = h.extra.nextEnded {
		for c := range h.extra.contexts {
			delete(h.extra.contexts, c)
			c.end(h.ending)
		}
	}
	through = true
	ended.res.told(ended)
}

// told goes on with a name whose holds have been told.
func (r *resource) told(ended *holding) {
	var fx effects
	r.sh.mu.Lock()
	for h := ended; h != nil; {
		x := h.extra
		h, x.nextEnded, x.contexts = x.nextEnded, nil, nil
		r.telling--
	}
	if r.telling == 0 {
		for _, h := range r.sh.untold[r] {
			h.extra.untold = false
			h.closeDone()
		}
		delete(r.sh.untold, r)
	}
	r.next(&fx)
	r.settled()
	r.sh.mu.Unlock()
	fx.run(r.sh.eng)
}

func (h *holding) closeDone() {
	if h.done != nil {
		close(h.done)
	}
}

// isTold reports whether h has ended and everybody knows.
func (h *holding) isTold() bool {
	return h.ending != nil && (h.extra == nil || !h.extra.untold)
}
