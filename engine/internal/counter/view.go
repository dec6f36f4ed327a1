package counter

// View is what a Counter shows to those who only look: reports and tests.
type View struct {
	Calls, Waiters, Tries, Held int
	Out, Doubt, Listens, Skips  bool
	Blocked                     uint8
	Number                      uint64
}

// View looks at it.
func (t *Counter) View() View {
	return View{
		t.calls.Len(), t.waiters.Len(), t.tries.Len(), t.held.Len(),
		t.Cmd.out, t.Cmd.doubt, t.wait.Listening(), t.skips, uint8(t.blocked), t.Cmd.Number,
	}
}
