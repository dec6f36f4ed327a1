package inspect

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// waitOf is a wait of an engine, for a name, for so long. carries is what its context carries.
func waitOf(engine, kind, name string, lasts time.Duration, carries ...Carried) Wait {
	return Wait{From: &Answer{Engine: engine}, Name: name, Use: Use{Kind: kind, Millis: lasts.Milliseconds(), Under: carries}}
}

// on are the owners that the server has: name, mode, owners.
func on(all ...[]string) map[string]Found {
	found := make(map[string]Found)
	for _, one := range all {
		f := Found{Name: one[0], Mode: one[1]}
		for _, id := range one[2:] {
			f.Owners = append(f.Owners, Owner{id, 1})
		}
		found[f.Name] = f
	}
	return found
}

func TestGuess_Samples_AreCompleted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what  string
		waits []Wait
		on    map[string]Found
		want  int // waits of the one cycle; 0: none
	}{
		{"two processes", []Wait{waitOf("p", "mutex", "b", 0), waitOf("q", "mutex", "a", 0)}, on([]string{"a", "", "p:1"}, []string{"b", "", "q:1"}), 2},
		{"a chain", []Wait{waitOf("p", "mutex", "b", 0), waitOf("q", "mutex", "c", 0)}, on([]string{"a", "", "p:1"}, []string{"b", "", "q:1"}), 0},
		{"one process", []Wait{waitOf("p", "mutex", "b", 0), waitOf("p", "mutex", "a", 0)}, on([]string{"a", "", "p:1"}, []string{"b", "", "p:2"}), 0},
		{"one waits for its own process", []Wait{waitOf("p", "mutex", "a", 0), waitOf("q", "mutex", "a", 0), waitOf("p", "mutex", "b", 0)}, on([]string{"a", "", "p:1"}, []string{"b", "", "q:1"}), 2},
		{"readers", []Wait{waitOf("p", "read", "b", 0), waitOf("q", "read", "a", 0)}, on([]string{"a", "read", "p:1"}, []string{"b", "read", "q:1"}), 0},
		{"readers, who keep writers out", []Wait{waitOf("p", "write", "b", 0), waitOf("q", "write", "a", 0)}, on([]string{"a", "read", "p:1", "r:1"}, []string{"b", "read", "q:1"}), 2},
		{"nobody has one", []Wait{waitOf("p", "mutex", "b", 0), waitOf("q", "mutex", "a", 0)}, on([]string{"a", "", "p:-1"}, []string{"b", "", "q:1"}), 0},
		{"one context carries its hold", []Wait{waitOf("p", "mutex", "b", 0, Carried{Name: []byte("a"), Owner: "p:1"}), waitOf("q", "mutex", "a", 0)}, on([]string{"a", "", "p:1"}, []string{"b", "", "q:1"}), 2},
		{"one context carries another hold", []Wait{waitOf("p", "mutex", "b", 0, Carried{Name: []byte("c"), Owner: "p:2"}), waitOf("q", "mutex", "a", 0)}, on([]string{"a", "", "p:1"}, []string{"b", "", "q:1"}), 0},
	} {
		all := guess(c.waits, c.on)
		got := pick(all, Cycles(all))
		if c.want == 0 && len(got) == 0 || len(got) == 1 && len(got[0]) == c.want {
			continue
		}
		t.Errorf("%s: %+v", c.what, got)
	}
}

func TestConfirmed_WhatHasChanged_IsNoDeadlock(t *testing.T) {
	t.Parallel()
	carried := func(name, owner string) Carried { return Carried{Name: []byte(name), Owner: owner} }
	a, b := carried("a", "p:1"), carried("b", "q:1")
	cycle := []Wait{waitOf("p", "mutex", "b", time.Second, a), waitOf("q", "mutex", "a", time.Second, b)}
	later := []Wait{waitOf("p", "mutex", "b", 2*time.Second, a), waitOf("q", "mutex", "a", 2*time.Second, b)}
	holds := on([]string{"a", "", "p:1"}, []string{"b", "", "q:1"})
	change := func(of []Wait, w Wait) []Wait { return append(slices.Clone(of[:1]), w) }
	for _, c := range []struct {
		what  string
		later []Wait
		on    map[string]Found
		want  bool
	}{
		{"the same", later, holds, true},
		{"a wait has ended", later[:1], holds, false},
		{"a wait has begun anew", change(later, waitOf("q", "mutex", "a", time.Second, b)), holds, false},
		{"under another hold", change(later, waitOf("q", "mutex", "a", 2*time.Second, carried("b", "q:2"))), holds, false},
		{"of another process", change(later, waitOf("r", "mutex", "a", 2*time.Second, b)), holds, false},
		{"another owner", later, on([]string{"a", "", "p:2"}, []string{"b", "", "q:1"}), false},
		{"free", later, on([]string{"a", "", "p:1"}), false},
	} {
		waits := confirmed(lasting(cycle, c.later), c.on)
		if got := len(Cycles(waits)) == 1; got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

// Two callers re-enter one hold, and their commands take long: each waits for what the other holds, too, and for
// nobody else.
func TestConfirmed_ReentriesOfOneHold_AreNoDeadlock(t *testing.T) {
	t.Parallel()
	a, b := Carried{Name: []byte("a"), Owner: "p:1"}, Carried{Name: []byte("b"), Owner: "q:1"}
	holds := on([]string{"a", "", "p:1"}, []string{"b", "", "q:1"})
	reenters := waitOf("p", "mutex", "a", time.Second, a)
	if got := Cycles(confirmed([]Wait{reenters, reenters}, holds)); got != nil {
		t.Errorf("two that re-enter: %v", got)
	}
	waits := confirmed([]Wait{reenters, waitOf("p", "mutex", "b", time.Second, a), waitOf("q", "mutex", "a", time.Second, b)}, holds)
	if got := pick(waits, Cycles(waits)); len(got) != 1 || len(got[0]) != 2 {
		t.Errorf("two that are in a deadlock, and one that re-enters: %+v", got)
	}
}

// Waits under a hold have their place in an answer, however many others there are that have lasted for longer.
func TestAnswer_ManyWaits_KeepsThoseUnderHolds(t *testing.T) {
	t.Parallel()
	a := &Answer{Engine: "p"}
	for i := range 5000 {
		a.Add(Name{Name: []byte(fmt.Sprint(i)), Uses: []Use{{Kind: "mutex", Millis: 1e6}}})
		if i == 100 {
			a.Add(Name{Name: []byte("under"), Uses: []Use{{Kind: "mutex", Millis: 1, Under: []Carried{{Name: []byte("held"), Owner: "p:1"}}}}})
		}
	}
	got, err := parseAnswer(a.Encode())
	if err != nil || !slices.ContainsFunc(got.Waits(), func(w Wait) bool { return w.Name == "under" && len(w.Under) == 1 }) || len(got.Waits()) != maxUses {
		t.Errorf("%d waits, %v", len(got.Waits()), err)
	}
}
