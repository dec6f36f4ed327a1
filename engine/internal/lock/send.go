package lock

func (r *Entry) sendAcquire(a *Request, head bool) {
	c := &r.Cmd
	c.Action, c.Head, r.headNext = Acquiring, head, !head
	c.try(a)
	c.Kind, c.ID = a.Kind, r.drawOwner(a)
	if head && r.sub.joins(a) {
		c.Join, c.Number = true, r.sub.join(a)
	}
	if h := a.writer(); h != nil && h.state == live {
		c.hold = h
		h.Root().mustRelease = true // the next one of its process may not have others beside it
		x := h.Root().more()
		x.sharedUntil = max(x.sharedUntil, r.Shard.Now().Add(c.Lease))
	} else if h != nil {
		a.extra.Writer = nil // it is a reader as any other from now on
	}
	if head && r.sub != nil {
		r.sub.Sent()
	}
}

// try notes that the command is for a.
func (c *Command) try(a *Request) {
	c.req, c.Lease, c.Acks = a, a.firstLease(), a.Acks
	a.Attempts = max(a.Attempts, a.Attempts+1)
	a.state = trying
}

func (r *Entry) sendReenter(a *Request) {
	c := &r.Cmd
	c.Action = Reentering
	c.try(a)
	c.Kind, c.ID, c.Number = a.Parent.Kind, a.Parent.ID, uint32(a.Parent.count+1)
	a.Parent.counts(c.Number)
	r.lengthens(c.Lease)
}

func (r *Entry) sendExtend(h *Hold) {
	c := &r.Cmd
	c.Action = Extending
	c.hold, c.Kind, c.ID, c.Lease, c.Acks = h, h.Kind, h.ID, h.extra.extend.Lease, h.Acks
	r.lengthens(c.Lease)
}

func (r *Entry) sendDecrement(h *Hold) {
	c := &r.Cmd
	c.Action = Decrementing
	c.hold, c.Kind, c.ID, c.Number = h, h.Kind, h.ID, uint32(h.Parent.count)
}

func (r *Entry) sendRelease(h *Hold) {
	c := &r.Cmd
	c.Action = Releasing
	c.hold, c.ID, c.Kind = h, h.ID, h.Kind
	r.finishRelease()
}

func (r *Entry) sendCompensation(d *Compensation) {
	c := &r.Cmd
	c.Action = Compensating
	c.compensation, c.ID, c.Kind, d.with = d, d.ID, d.kind, nil
	if d.what == aPlace {
		c.Action = Withdrawing
		return
	}
	r.finishRelease()
}

// finishRelease is what the end of a hold and that of a compensation have in common.
func (r *Entry) finishRelease() {
	c := &r.Cmd
	c.Server, c.Lease = r.Shard.ServerOf(r.Route), 0
	if at := c.minEnd(); at != 0 {
		c.Lease = at.Sub(r.Shard.Now())
	}
}

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
