package machine

// View is what a name shows to those who only look: reports and tests.
type View struct {
	What      What // of the command in flight
	Held      Holdback
	Tried     Tried
	Refusals  uint8 // in a row
	Hold      bool
	Waiters   int
	Attempts  uint32 // of the first of them
	Debts     int
	Owed      int64 // the owner of the latest debt
	Waits     bool  // there is a Wait
	Asleep    bool  // and its head sleeps
	Confirmed bool  // and the server has confirmed the subscription
	Lingers   bool
}

// View is called under the shard's lock.
func (r *Resource) View() View {
	v := View{What: r.Cmd.What, Held: r.held, Tried: r.tried, Refusals: r.refused, Hold: r.hold != nil, Waiters: r.waiters.Len()}
	if a, ok := r.waiters.Front(); ok {
		v.Attempts = a.Attempts
	}
	for d := r.debts; d != nil; d = d.next {
		v.Debts++
	}
	if r.debts != nil {
		v.Owed = r.debts.ID
	}
	if w := r.wait; w != nil {
		v.Waits, v.Asleep, v.Confirmed, v.Lingers = true, !w.Ready(), w.Hears(), w.linger
	}
	return v
}

// Extends reports whether an Extend of the hold is under way.
func (h *Hold) Extends() bool { return h.extra != nil && h.extra.extend != nil }

// Refusal is the latest answer to the release or the Extend under way, if it settled nothing.
func (h *Hold) Refusal() error {
	if h.extra == nil {
		return nil
	}
	return h.extra.refusal
}

// Bounded is what ends the request by its own time; nil if nothing does.
func (a *Request) Bounded() Bound {
	if a.rare == nil {
		return nil
	}
	return a.rare.bound
}
