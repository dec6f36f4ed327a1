package lock

// When a hold ends, the contexts that were made from it must end before anybody else
// can get the lock. Ending a context takes longer the larger the tree below it is, and
// calls methods of its parent, which may be a user's own context. So it is done without
// a lock, and never on an event loop or a timer.
//
// Invariants:
//
//  1. From the end of a hold with contexts until ContextsEnded, its entry counts it
//     (endingContexts), and next chooses nothing for the name: no release, no compensation, no
//     acquire of the next waiter. It is not enough that each transition ends the
//     contexts before it sends, because another one may choose the release meanwhile:
//
//     Unlock's goroutine                        event loop
//     an Extend is in flight; the hold ends
//     ends the contexts ...                     reply of the Extend: next
//     ... still does                            release
//
//  2. The contexts of a hold that has ended belong to the goroutine that ends them;
//     nothing else touches the set.
//  3. Done of a hold is closed when no context of it or of its re-entries is left, whichever
//     ended first (holdExtra.ending).

// Bind has c end with the hold, which is live.
func (h *Hold) Bind(c Context) {
	h.more().contexts.Add(c)
}

// Unbind undoes Bind, unless the hold has ended.
func (h *Hold) Unbind(c Context) {
	if h.ended == notEnded && h.extra != nil {
		h.extra.contexts.Remove(c)
	}
}

// Contexts are those that end with the hold, in their order.
func (h *Hold) Contexts() []Context {
	if h.extra == nil {
		return nil
	}
	return h.extra.contexts.InOrder()
}

// NextEnded is the next one after h of Ready.Ended.
func (h *Hold) NextEnded() *Hold { return h.extra.nextEnded }

// announce arranges that the contexts and Done of h learn of its end.
func (h *Hold) announce(rd *Ready) {
	r := h.Entry
	if x := h.extra; x != nil && x.contexts.Len() > 0 {
		r.endingContexts++
		x.nextEnded, rd.Ended = rd.Ended, h
		rd.Contexts += x.contexts.Len()
		for of := h; of != nil; of = of.Parent {
			of.more().ending++
		}
	}
}

// IsAnnounced reports whether h has ended and everybody knows.
func (h *Hold) IsAnnounced() bool {
	return h.ended != notEnded && (h.extra == nil || h.extra.ending == 0)
}
