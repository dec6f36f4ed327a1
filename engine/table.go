package engine

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/reason"
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

// A shard is one lock and what it guards: its resources, and everything that belongs to
// them (acquisitions, holdings, waits, debts). Every transition of a resource happens
// under its shard's lock. Commands are sent and users are told after it (see effects).
type shard struct {
	eng       *Engine
	mu        sync.Mutex
	resources [kind.Count]map[string]*resource
	free      *resource // ready for use again; see resource.recycle
	freeCount int
	ids       idSource
	count     counters
	untold    map[*resource][]*holding // holds that ended while contexts of their name have not; see telling.go

	_ [64]byte // neighbours do not share a cache line
}

func (t *table) shard(route uint64) *shard {
	// The low bits pick the node and the lane, the high ones the shard.
	return &t[route>>56]
}

// getLocked returns the resource of a name, made if need be.
func (s *shard) getLocked(k key, route uint64) *resource {
	if r := s.resources[k.kind][k.name]; r != nil {
		return r
	}
	r := s.free
	if r != nil {
		s.free, r.nextFree = r.nextFree, nil
		s.freeCount--
	} else {
		r = &resource{sh: s}
	}
	r.name, r.kind, r.route = k.name, k.kind, route
	s.resources[k.kind][k.name] = r
	return r
}

// idSource hands out the numbers of owners: 63 bits that nobody can guess, read
// in bulk.
type idSource struct {
	buf  [256]byte
	left int
}

func (s *idSource) next(secret func([]byte)) int64 {
	for {
		if s.left == 0 {
			secret(s.buf[:])
			s.left = len(s.buf)
		}
		s.left -= 8
		if id := int64(binary.LittleEndian.Uint64(s.buf[s.left:]) & math.MaxInt64); id != 0 {
			return id
		}
	}
}
