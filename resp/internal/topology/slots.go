package topology

import (
	"sync/atomic"

	"github.com/pawl-lock/pawl/resp/internal/slot"
)

// Slots says which node serves which slot; without slots, which one serves all. The zero
// value has no slots. Reads take no lock.
//
// A route is any number whose low bits are a slot.
type Slots[Node any] struct {
	single atomic.Pointer[Node]   // where there are no slots
	slots  []atomic.Pointer[Node] // in a cluster, by slot; nil elsewhere
	moved  atomic.Bool            // Move has changed a slot since the latest Moved
}

// Divide makes the slots of a cluster, which nobody serves yet. It comes before all else.
func (s *Slots[Node]) Divide() { s.slots = make([]atomic.Pointer[Node], slot.Count) }

// Divided reports whether there are slots.
func (s *Slots[Node]) Divided() bool { return s.slots != nil }

// Of returns the node that serves the route; nil if none is known.
func (s *Slots[Node]) Of(route uint64) *Node {
	if s.slots == nil {
		return s.single.Load()
	}
	return s.slots[route%slot.Count].Load()
}

// Serving returns the nodes that serve something.
func (s *Slots[Node]) Serving() map[*Node]bool {
	set := make(map[*Node]bool)
	if s.slots == nil {
		set[s.single.Load()] = true
	}
	var last *Node
	for i := range s.slots {
		if n := s.slots[i].Load(); n != last {
			set[n] = true
			last = n
		}
	}
	return set
}

// Serve has a node serve everything, where there are no slots.
func (s *Slots[Node]) Serve(n *Node) (changed bool) { return s.single.Swap(n) != n }

// Move gives a node a slot, as MOVED says.
func (s *Slots[Node]) Move(slot uint16, n *Node) {
	if s.slots[slot].Swap(n) != n {
		s.moved.Store(true)
	}
}

// Moved reports whether a slot has moved since the last time.
func (s *Slots[Node]) Moved() bool { return s.moved.Swap(false) }

// Follow makes them those of a layout, whose primaries are these nodes. Slots that nobody
// serves keep their node: it will tell.
func (s *Slots[Node]) Follow(shards []Shard, nodes map[string]*Node) (changed bool) {
	for _, shard := range shards {
		n := nodes[shard.Primary]
		if s.slots == nil {
			changed = s.Serve(n) || changed
			continue
		}
		for i := int(shard.First); i <= int(shard.Last); i++ {
			if old := &s.slots[i]; old.Load() != n {
				old.Store(n)
				changed = true
			}
		}
	}
	return changed
}
