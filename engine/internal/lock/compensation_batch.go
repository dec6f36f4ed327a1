package lock

// A command may release owners beside what it is for: compensations, beside another or an acquire, or
// a hold, beside the acquire of the next one. So an owner that was in doubt costs no round trip
// before the next try, and a lock is not free between two holds.
//
// Each has its own answer. On the server the releases come first.

// addCompensations has the command settle the compensations that are due, but for the one that it is for.
func (r *Entry) addCompensations() {
	c := &r.Cmd
	first, last := c.compensation, &c.compensation
	if first != nil {
		last = &first.with
	}
	for d := r.compensations; d != nil && c.Batched < maxBatch-1; d = d.next {
		if d.due && d != first {
			*last, last = d, &d.with
			c.Batched++
		}
	}
	*last = nil
}

// sendReleaseAndAcquire releases h, and acquires for a.
func (r *Entry) sendReleaseAndAcquire(h *Hold, a *Request) {
	h.mustRelease = true // if this is in vain, it is released alone
	r.sendAcquire(a, true)
	r.Cmd.Server = r.Shard.ServerOf(r.Route)
	r.Cmd.before, r.Cmd.Batched = h, 1
}
