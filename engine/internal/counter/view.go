package counter

// View is what a Counter shows to those who only look: reports and tests.
type View struct {
	Calls, Waiters, Tries, Held int
	Out, Doubt, Listens, Skips  bool
	Blocked                     uint8
	Number                      uint64
}

// EachWaiter visits those who wait, until visit returns false.
func (t *Counter) EachWaiter(visit func(*Op) bool) {
	for op := range t.waiters.All() {
		if !visit(op) {
			return
		}
	}
}

// View looks at it.
func (t *Counter) View() View {
	return View{
		t.calls.Len(), t.waiters.Len(), t.tries.Len(), t.held.Len(),
		t.Cmd.out, t.Cmd.doubt, t.wait.Listening(), t.wait.Skips(), uint8(t.blocked), t.Cmd.Number,
	}
}
