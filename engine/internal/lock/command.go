package lock

import (
	"slices"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// What a command is.
type CommandKind uint8

// The commands.
const (
	NoCommand CommandKind = iota
	Acquiring
	Reentering
	Extending
	Decrementing // one of several holds given back
	Releasing    // the last hold given back: release or retire
	Compensating // a compensation released
	Withdrawing  // a compensation of a place in the queue
)

// Command is the one command of an entry that is in flight. From when it is sent until it
// is answered, the fields that are encoded do not change. Its pointers to waiters are
// cleared, under the shard's lock, when these stop waiting.
type Command struct {
	Action     CommandKind
	Head       bool     // acquiring: for the front of waiters, so the wait must hear of it
	Join       bool     // acquiring: it uses the queue at the server; see queue.go
	FirstAsync bool     // acquiring: the first command of a LockAsync, sent by that call
	Kind       uint8    // the engine's, of the owner
	Batched    uint8    // how many owners it releases beside what it is for: see send.go
	Acks       Acks     // replicas that must acknowledge it
	Number     uint32   // of a re-entry or a leave: the count afterwards; acquiring from the queue: the first that it has waited for
	Server     ServerID // where a release goes, a hold's or a compensation's
	ID         int64
	Lease      time.Duration // the lease; of a release: what a MinHold has left, if > 0

	req          *Request
	hold         *Hold         // acquiring: see Writer
	before       *Hold         // acquiring: the hold of this process that the same command releases
	compensation *Compensation // the first of those that it settles

	Throttle *Throttle // who counts it, if anybody does
}

// Throttle is what the engine counts commands by, to send no more than so many.
type Throttle struct{ Counter any }

// Writer is a hold of the same name whose owner does not keep an acquire out; mostly nil.
func (c *Command) Writer() *Hold {
	if c.Action != Acquiring {
		return nil
	}
	return c.hold
}

// Wanted reports whether anybody wants it still.
func (c *Command) Wanted() bool {
	return c.req != nil || c.Batched != 0 || c.Action != Acquiring && c.Action != Reentering
}

// minEnd is the MinHold's of what a release is for; 0 without one.
func (c *Command) minEnd() clock.Instant {
	if c.compensation != nil {
		return c.compensation.minEnd
	}
	return c.hold.minEnd()
}

// beside is the first of the compensations that the command settles beside what it is for.
func (c *Command) beside() *Compensation {
	if c.Action == Compensating {
		return c.compensation.with
	}
	return c.compensation
}

// BatchedIDs are the owners that the command releases beside what it is for. They do not change
// while it is out, whatever becomes of the compensations.
func (c *Command) BatchedIDs(yield func(id int64) bool) {
	if c.before != nil {
		yield(c.before.ID)
		return
	}
	for d := c.beside(); d != nil && yield(d.ID); {
		d = d.with
	}
}

// carries reports whether the command does something to the owner of d.
func (c *Command) carries(d *Compensation) bool {
	return c.Action != NoCommand && (c.ID == d.ID || slices.Contains(slices.Collect(c.BatchedIDs), d.ID))
}
