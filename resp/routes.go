package resp

import (
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/pawl-lock/pawl/resp/internal/slot"
)

// routes says which node serves what. Reads take no lock.
//
// A route is the hash of a name, with the name's slot as its low bits. The bits above
// choose among a node's lanes, which the slot cannot do: names that share a hash tag
// would share the lane.
type routes struct {
	single atomic.Pointer[node]   // where there are no slots
	slots  []atomic.Pointer[node] // in a cluster, by slot; nil elsewhere
	moved  atomic.Bool            // MOVED has changed a slot since the last layout
}

// of returns the node that serves the route; nil if none is known.
func (r *routes) of(route uint64) *node {
	if r.slots == nil {
		return r.single.Load()
	}
	return r.slots[route%slot.Count].Load()
}

// nodes returns those that serve something.
func (r *routes) nodes() map[*node]bool {
	set := make(map[*node]bool)
	if r.slots == nil {
		set[r.single.Load()] = true
	}
	var last *node
	for i := range r.slots {
		if n := r.slots[i].Load(); n != last {
			set[n] = true
			last = n
		}
	}
	return set
}

// Route returns the route of a name: which node and which lane its commands take.
func (c *Client) Route(name string) uint64 {
	return xxhash.Sum64String(name)&^(slot.Count-1) | uint64(slot.Of(name))
}

// Clustered reports whether keys have slots. Then a command on several keys is
// refused by the server unless they share one, as they do if their routes have the
// same Slot.
func (c *Client) Clustered() bool { return c.routes.slots != nil }

// Slot returns the slot of a route. With one server it is not needed, but that server
// may be a proxy in front of shards.
func Slot(route uint64) uint16 { return uint16(route % slot.Count) }

// SlotOf returns the cluster slot of a key: the CRC16 of its hash tag, which is the
// text between the first { and the next }. Without a tag, or with an empty one, it is
// the CRC16 of the whole key. (Redis cluster specification, "Hash tags".)
func SlotOf(key string) uint16 { return slot.Of(key) }
