package recovery

import (
	"slices"

	"github.com/pawl-lock/pawl/engine/internal/env"
)

// View is what a Recovery shows to those who only look: reports and tests.
type View struct {
	Lanes             []LaneView
	Servers, Releases int // that are remembered
}

// LaneView is a lane that has something to do.
type LaneView struct {
	Lane          env.Lane
	Urgent, Tries []Stalled
	Again         int // past releases
	Out           int // without an answer
	Kicked        bool
}

// View looks at all of it.
func (v *Recovery) View() (view View) {
	v.mu.Lock()
	for _, l := range v.mu.lanes {
		view.Lanes = append(view.Lanes, LaneView{
			Lane: l.id, Urgent: slices.Clone(l.urgent), Tries: slices.Clone(l.tries),
			Again: len(l.resend), Out: l.out, Kicked: l.rechecking,
		})
	}
	v.mu.Unlock()
	m := &v.released
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.mu.servers {
		view.Servers++
		for _, p := range s.pages {
			view.Releases += p.n
		}
	}
	return view
}

// Freeze takes the locks, until it is thawed: for a test that shows that somebody takes none
// of them.
func (v *Recovery) Freeze() (thaw func()) {
	v.mu.Lock()
	v.released.mu.Lock()
	return func() {
		v.released.mu.Unlock()
		v.mu.Unlock()
	}
}
