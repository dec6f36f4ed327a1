package engine

import (
	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/engine/internal/script"
)

// key names a resource: the name is the mapped one, as it stands on the server.
type key struct {
	name string
	kind kind.Kind
}

// placeable refuses a name whose channel would be in another slot than its key.
func (k key) placeable() error {
	channel, ok := k.kind.Placeable(k.name)
	if ok {
		return nil
	}
	return reason.Invalid("the name %q cannot be used in a cluster: its channel %q would belong to another slot, where its release cannot be announced; use one pair of braces with something in it, as in orders:{42}, or none",
		reason.Shorten(k.name), reason.Shorten(channel))
}

const shardCount = 256

// table holds the resources of an engine, sharded by the route of the name.
type table [shardCount]shard

func (t *table) shard(route uint64) *shard {
	// The low bits pick the node and the lane, the high ones the shard.
	return &t[route>>56]
}

// ownerOf is this engine's owner of a resource, with the given number.
func ownerOf(r *machine.Resource, id int64) script.Owner {
	return script.Owner{Engine: engineOf(r).id, ID: id}
}

// channelOf is where the end of the lock is announced.
func channelOf(r *machine.Resource) script.Channel {
	return kindOf(r).Channel(r.Name, engineOf(r).verb())
}

// verb is how a release is announced. Sharded messages and plain ones are strangers.
func (e *Engine) verb() string {
	switch {
	case !e.client.Sharded():
		return "PUBLISH"
	case e.cfg.Sharding == "both":
		return "BOTH"
	default:
		return "SPUBLISH"
	}
}
