// Package env is what an engine needs of the world around it: time, timers,
// connections, goroutines and randomness. It decides nothing about locks. No other package of
// the engine makes them or asks a generator for random numbers. The real one is the machine and the network.
// The simulation has another (engine/internal/sim), in which one seed decides everything.
//
// What an engine decides depends on nothing else. Calls that block wait with After and Wait,
// but for Await, AwaitAll and AwaitAny of futures.
package env

import (
	"context"
	cryptorand "crypto/rand"
	"math/rand/v2"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/wheel"
)

// Env makes the parts of an engine.
type Env struct {
	Clock  clock.Clock
	Client func(resp.Config, Events) Client
	Timers func(wheel.Config) Timers
	// Go runs a function on a goroutine of its own.
	Go func(func())
	// After returns a channel that is closed after d, and what stops that.
	After func(d time.Duration) (over <-chan struct{}, stop func() bool)
	// Wait waits until one of the channels is ready, receives from it, and returns which it
	// is: 0 for a, 1 for b, 2 for c. A nil channel is never ready.
	Wait func(a, b, c <-chan struct{}) int
	// AfterFunc is context.AfterFunc.
	AfterFunc func(ctx context.Context, f func()) (stop func() bool)
	// Int64N returns a random number in [0, n). It spreads pauses; nothing secret hangs
	// on it.
	Int64N func(n int64) int64
	// RandRead fills b with what nobody can guess: the ids of engines and owners.
	RandRead func(b []byte)
	// Front is how many engines that wait for a name race for it; 0: as many as usual. The others queue.
	Front int
	// OnStart is told how to look inside the engine, unless it is nil: a test sees with it that
	// nothing is left.
	OnStart func(inside func() Snapshot)
	// Lose is told how to end the holds of a key for a reason, which returns how many there were,
	// unless it is nil: a test has its code lose a lock with it.
	Lose func(lose func(key string, why uint8) int)
}

// Snapshot is what an engine remembers at a moment.
type Snapshot struct {
	Names   int      // that have a state
	Urgent  int      // those of them that are held, or owe the server a release
	Listed  int      // those that wait for a lane
	Out     int      // commands after an outage that have no answer
	Many    int      // MultiLocks and RedLocks that somebody waits for
	Watched int      // groups of contexts
	States  []string // of names and command_conns, for people
}

// Draw returns a random duration in [0, d).
func (w *Env) Draw(d time.Duration) time.Duration { return time.Duration(w.Int64N(int64(d))) }

// Shuffle brings n things into a random order.
func (w *Env) Shuffle(n int, swap func(i, j int)) {
	for i := n - 1; i > 0; i-- {
		swap(i, int(w.Int64N(int64(i+1))))
	}
}

// Timers is what an engine uses of a wheel.Wheel.
type Timers interface {
	Schedule(t *wheel.Timer, at clock.Instant)
	Cancel(t *wheel.Timer) bool
	Close()
	Stats() wheel.Stats
}

// Lane is where the commands of some names go: a stream of its own to one server. It is
// comparable.
type Lane interface {
	// Up reports whether it has a connection.
	Up() bool
}

// Events are what a Client tells its engine. They are called on event loops, or on
// goroutines of the client. If Env.Client has not returned yet they wait for it, so it
// must not call them itself.
type Events struct {
	// Connection: one came or went. lane is that of a resp.RoleLane.
	Connection func(s resp.State, lane Lane)
	// Routes: names may have come to other servers.
	Routes func()
	// Outage: a server is away, or is not any more. It is called under a lock of the client, and
	// must not call that.
	Outage func(resp.Outage)
}

// Client is what an engine uses of a resp.Client; see there.
type Client interface {
	WaitFirst(ctx context.Context) error
	Submit(route uint64, r resp.Request)
	SubmitRenewal(route uint64, r resp.Request)
	SubmitDurable(route uint64, r resp.DurableRequest)
	SubmitDurableRenewal(route uint64, r resp.DurableRequest)
	Subscribe(ch *resp.Channel)
	Unsubscribe(ch *resp.Channel)
	Route(name string) uint64
	LaneOf(route uint64) Lane
	LaneError(route uint64) error
	RenewalError(route uint64) error
	DownSince(route uint64) clock.Instant
	Pausing(route uint64) error
	Missing() (since map[string]clock.Instant, connected int)
	Ready() error
	ServerOf(route uint64) resp.ServerID
	AddrOf(route uint64) string
	Clustered() bool
	Sharded() bool
	Stats() resp.Stats
	Close() error
}

// Real is the machine and the network, with the time of a clock.
func Real(c clock.Clock) Env {
	return Env{
		Clock:     c,
		Client:    open,
		Timers:    func(cfg wheel.Config) Timers { return wheel.New(cfg) },
		Go:        func(f func()) { go f() },
		After:     after,
		Wait:      wait,
		AfterFunc: context.AfterFunc,
		Int64N:    rand.Int64N,
		RandRead:  func(b []byte) { _, _ = cryptorand.Read(b) }, // never fails; see crypto/rand
	}
}

func after(d time.Duration) (<-chan struct{}, func() bool) {
	over := make(chan struct{})
	return over, time.AfterFunc(d, func() { close(over) }).Stop
}

func wait(a, b, c <-chan struct{}) int {
	if c == nil { // as for Lock and Unlock: a smaller select costs less
		select {
		case <-a:
			return 0
		case <-b:
			return 1
		}
	}
	select {
	case <-a:
		return 0
	case <-b:
		return 1
	case <-c:
		return 2
	}
}

// RespClient is a resp.Client as a Client.
type RespClient struct{ *resp.Client }

// LaneOf implements Client.
func (c RespClient) LaneOf(route uint64) Lane { return c.Client.LaneOf(route) }

func open(cfg resp.Config, events Events) Client {
	cfg.OnState = func(s resp.State) { events.Connection(s, s.ID) }
	cfg.OnRoutes, cfg.OnOutage = events.Routes, events.Outage
	return RespClient{resp.Open(cfg)}
}

type contextKey struct{}

// With returns a context in which engine.New makes an engine of this environment.
func With(ctx context.Context, w Env) context.Context {
	return context.WithValue(ctx, contextKey{}, &w)
}

// From returns the environment of a context; the real one if it has none.
func From(ctx context.Context) Env {
	if w, ok := ctx.Value(contextKey{}).(*Env); ok {
		return *w
	}
	return Real(clock.System())
}
