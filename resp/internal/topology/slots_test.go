package topology

import (
	"maps"
	"testing"

	"github.com/pawl-lock/pawl/resp/internal/slot"
)

// server is who serves slots here.
type server string

func TestSlots_MovesAndLayouts_LatestCounts(t *testing.T) {
	t.Parallel()
	a, b, c := server("a"), server("b"), server("c")
	nodes := map[string]*server{"a:1": &a, "b:1": &b, "c:1": &c}
	var s Slots[server]
	s.Divide()
	expect := func(when string, want map[uint64]*server) {
		t.Helper()
		for route, n := range want {
			if got := s.Of(route); got != n {
				t.Errorf("%s: %p serves slot %d, want %p", when, got, route%slot.Count, n)
			}
		}
	}
	if !s.Divided() || s.Of(7) != nil {
		t.Error("somebody serves at the beginning")
	}
	half := []Shard{{First: 0, Last: 8191, Primary: "a:1"}, {First: 8192, Last: slot.Count - 1, Primary: "b:1"}}
	if !s.Follow(half, nodes) {
		t.Error("the first layout is no change")
	}
	expect("a layout", map[uint64]*server{0: &a, 8191: &a, 8192: &b, slot.Count - 1: &b, 5<<40 + 8191: &a})
	if s.Follow(half, nodes) || s.Moved() {
		t.Error("the same layout is a change")
	}
	s.Move(7, &b)
	s.Move(9, &a) // as it was
	expect("a move", map[uint64]*server{6: &a, 7: &b, 8: &a, 9: &a})
	if !s.Moved() || s.Moved() {
		t.Error("a move is told once")
	}
	if s.Move(9, &a); s.Moved() {
		t.Error("to where it was is no move")
	}
	if !maps.Equal(s.Serving(), map[*server]bool{&a: true, &b: true}) {
		t.Errorf("%v serve", s.Serving())
	}
	// A gap: the node that is to tell is the one that was there.
	if !s.Follow([]Shard{{First: 8192, Last: slot.Count - 1, Primary: "c:1"}}, nodes) {
		t.Error("another primary is no change")
	}
	expect("a gap", map[uint64]*server{0: &a, 7: &b, 8192: &c})
	if !maps.Equal(s.Serving(), map[*server]bool{&a: true, &b: true, &c: true}) {
		t.Errorf("%v serve", s.Serving())
	}
}

func TestSlots_Undivided_OneServesAll(t *testing.T) {
	t.Parallel()
	a, b := server("a"), server("b")
	var s Slots[server]
	if s.Divided() || s.Of(7) != nil {
		t.Error("somebody serves at the beginning")
	}
	if !s.Serve(&a) || s.Serve(&a) || s.Of(7) != &a {
		t.Error("a does not serve, or twice")
	}
	all := []Shard{{Last: slot.Count - 1, Primary: "b:1"}}
	if !s.Follow(all, map[string]*server{"b:1": &b}) || s.Follow(all, map[string]*server{"b:1": &b}) || s.Of(7) != &b {
		t.Error("b does not serve, or twice")
	}
	if !maps.Equal(s.Serving(), map[*server]bool{&b: true}) {
		t.Errorf("%v serve", s.Serving())
	}
}
