package resp

import (
	"github.com/cespare/xxhash/v2"

	"github.com/pawl-lock/pawl/resp/internal/slot"
)

// Route returns the route of a name: which node and which lane its commands take.
func (c *Client) Route(name string) uint64 {
	// Its low bits are the slot. The bits above choose among a node's lanes, which the slot
	// cannot do: names that share a hash tag would share the lane.
	return xxhash.Sum64String(name)&^(slot.Count-1) | uint64(slot.Of(name))
}

// Clustered reports whether keys have slots. Then a command on several keys is
// refused by the server unless they share one, as they do if their routes have the
// same Slot.
func (c *Client) Clustered() bool { return c.routes.Divided() }

// Slot returns the slot of a route. With one server it is not needed, but that server
// may be a proxy in front of shards.
func Slot(route uint64) uint16 { return uint16(route % slot.Count) }

// SlotOf returns the cluster slot of a key: the CRC16 of its hash tag, which is the
// text between the first { and the next }. Without a tag, or with an empty one, it is
// the CRC16 of the whole key. (Redis cluster specification, "Hash tags".)
func SlotOf(key string) uint16 { return slot.Of(key) }
