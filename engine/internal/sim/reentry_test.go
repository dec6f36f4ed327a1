package sim

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// planted is a world in which P1 has a and wants b, and P2 has b and wants what it is told.
func planted(t *testing.T, wants string, carry bool) []engine.Cycle {
	t.Helper()
	w := newStory()
	t.Cleanup(w.end)
	w.inspected = true
	var holds [2]*engine.Hold
	for i, name := range plain[:2] {
		p := w.newProcess()
		w.pass(time.Millisecond)
		p.mutex(name).LockAsync(context.Background()).OnComplete(func(h *engine.Hold, err error) { holds[i] = h })
		w.pass(time.Second)
	}
	for i, name := range []string{"b", wants} {
		ctx := w.ctx
		if carry {
			ctx = holds[i].Context(w.ctx)
		}
		w.processes[i].mutex(name).LockAsync(ctx)
	}
	w.pass(3 * time.Second)
	var cycles []engine.Cycle
	err := context.DeadlineExceeded
	w.start(w.processes[0], func() { cycles, err = w.processes[0].engine().Deadlocks(context.Background()) })
	w.pass(2 * time.Second)
	if err != nil || w.failure != nil {
		t.Fatal(err, w.failure)
	}
	return cycles
}

func TestFindDeadlocks_Planted_AreFound(t *testing.T) {
	t.Parallel()
	if found := planted(t, "a", true); len(found) != 1 || len(found[0].Waits) != 2 || found[0].Possible {
		t.Errorf("%+v", found)
	}
	if found := planted(t, "a", false); len(found) != 1 || len(found[0].Waits) != 2 || !found[0].Possible {
		t.Errorf("without contexts: %+v", found)
	}
	for _, carry := range []bool{true, false} {
		if found := planted(t, "c", carry); len(found) != 0 {
			t.Errorf("a chain, carry %v: %+v", carry, found)
		}
	}
}

// What an engine says of a deadlock is held against what was true: one that nobody was in is noticed.
func TestLookout_DeadlockThatWasNone_IsNoticed(t *testing.T) {
	t.Parallel()
	cycle := func(possible bool) engine.Cycle {
		p, q := &engine.EngineInfo{ID: "p"}, &engine.EngineInfo{ID: "q"}
		return engine.Cycle{Possible: possible, Waits: []engine.Use{{Engine: p, Name: "b"}, {Engine: q, Name: "a"}}}
	}
	set := func(all ...string) map[claim]bool { // each of an engine, a name and perhaps one that it waits under
		m := make(map[claim]bool)
		for _, one := range all {
			words := append(strings.Fields(one), "")
			m[claim{words[0], words[1], words[2]}] = true
		}
		return m
	}
	owns := set("p a", "q b")
	for _, c := range []struct {
		what           string
		moments        []moment
		real, possible bool
	}{
		{"all at once", []moment{{set("p b", "p b a", "q a", "q a b"), owns}}, true, true},
		{"one after the other", []moment{{set("p b", "p b a"), owns}, {set("q a", "q a b"), owns}}, false, false},
		{"one context carries nothing", []moment{{set("p b", "p b a", "q a"), owns}}, false, true},
		{"one is free", []moment{{set("p b", "p b a", "q a", "q a b"), set("p a")}}, false, false},
	} {
		o := &lookout{c.moments}
		if o.had(cycle(false)) != c.real || o.had(cycle(true)) != c.possible {
			t.Errorf("%s: %v, %v", c.what, o.had(cycle(false)), o.had(cycle(true)))
		}
	}
}
