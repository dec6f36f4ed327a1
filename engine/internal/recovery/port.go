package recovery

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/env"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/wheel"
)

// Config is what a Recovery needs.
type Config struct {
	Clock   clock.Clock
	Wheel   Timers
	Client  Client
	Shuffle func(n int, swap func(i, j int))
	Engine  Port
	// Keep is how long a release is remembered while its server can be reached. It is 0 for
	// a server that nothing replaces: then none is.
	Keep time.Duration
}

// Port is package driver, which drives the entries. Its methods are called without any lock of
// this package, and may lock the shard of the name.
type Port interface {
	// Closing: nothing new is admitted. Then a lane that is down is gone on with, too.
	Closing() bool
	// Result classes the error of a reply.
	Result(err error) lock.Result
	// AppendRelease encodes a release, of whose MinHold rest is left, if that is > 0. It may
	// be called under a lock of the client.
	AppendRelease(dst []byte, form resp.ScriptForm, r *Release, rest time.Duration) []byte
}

// Stalled is the state of a name, as it is listed while that is stalled: a lock's or a count's.
// Its methods may lock the shard of the name.
type Stalled interface {
	// Status looks at it: is it stalled, has it something to give back, or a hold, and by which route does
	// it go?
	Status() (stalled, urgent bool, route uint64)
	// Advance ends the stall, and reports whether it sends something. That is counted by the pace; its answer
	// comes to Answered.
	Advance(by *lock.Throttle) (sends bool)
	// Unwanted is whether nobody wants it any more. It is guarded by a lock of this package.
	Unwanted() *bool
}

// Client is what a Recovery uses of an env.Client.
type Client interface {
	Submit(route uint64, r resp.Request)
	Route(name string) uint64
	LaneOf(route uint64) env.Lane
	ServerOf(route uint64) resp.ServerID
}

// Timers is what a Recovery uses of a wheel.Wheel.
type Timers interface {
	Schedule(t *wheel.Timer, at clock.Instant)
	Cancel(t *wheel.Timer) bool
}
