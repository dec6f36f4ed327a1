package engine

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/ctxwatch"
	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/env"
	"github.com/pawl-lock/pawl/engine/internal/executor"
	"github.com/pawl-lock/pawl/engine/internal/inspect"
	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/watchdog"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
	"github.com/pawl-lock/pawl/wheel"
)

// Engine holds the connections to a server, and all locks that this process holds or
// waits for there. Use one per process and server; it is safe for use by any goroutine.
// Two engines exclude each other like two processes, even in one process.
type Engine struct{ *core }

// core is what is behind an Engine: fmt, which would read fields that others write, stops at the
// pointer to it.
type core struct {
	cfg           Config // without passwords
	clock         clock.Clock
	world         env.Env
	watches       ctxwatch.Watches[*acquisition]
	exec          executor.Executor
	observer      Observer       // of acquisitions and holds; nil: nobody observes
	background    Observer       // of renewals and connections
	logger        *slog.Logger   // nil: silent
	calls         executor.Queue // of both
	eventsDropped atomic.Uint64
	wall          atomic.Pointer[wallReading]
	failures      watchdog.Failures
	table         driver.Table

	// The pools are this engine's alone: what they hold has a channel, and one that
	// was made in a testing/synctest bubble must never come out in another.
	acquisitions, unlockings sync.Pool

	closed    closing
	roundTrip atomic.Int64 // the latest of a RedLock; see quorum.Port
}

// Open connects to the server of a URL: it is ParseURL followed by New.
func Open(ctx context.Context, url string) (*Engine, error) {
	cfg, err := ParseURL(url)
	if err != nil {
		return nil, err
	}
	return New(ctx, cfg)
}

// New makes an engine, which must be closed. Unless Config.Lazy is set, it waits until all
// connections are up, as long as ctx lives. If none of Config.Addrs can be reached, or a password
// is wrong, it fails at once with ErrUnavailable and says why; an address that does not even refuse
// takes Config.DialTimeout, several up to twice that. If a server answers but is loading its data,
// or a failover is under way, it tries again for Config.DialTimeout. If only some primaries serve
// by then, New returns with these, and the log names the others.
func New(ctx context.Context, cfg Config) (*Engine, error) {
	if ctx == nil {
		return nil, lockerr.ErrNoContext
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	e := start(cfg, env.From(ctx))
	if cfg.Lazy {
		return e, nil
	}
	if err := e.table.Client.WaitFirst(ctx); err != nil {
		_ = e.Close()
		return nil, lockerr.Wrap(ErrUnavailable, err)
	}
	return e, nil
}

// start makes the parts and lets them connect.
func start(cfg Config, w env.Env) *Engine {
	e := &Engine{&core{cfg: cfg, world: w, clock: w.Clock}}
	e.cfg.Password, e.cfg.SentinelPassword = "", ""
	e.acquisitions.New, e.unlockings.New = newPooledAcquisition, newPooledUnlocking
	e.closed.over = make(chan struct{})
	e.watches.AfterFunc = w.AfterFunc
	e.table.Init(driver.Config{
		Engine: (*driverPort)(e), ID: newUUID(w.RandRead), Lock: cfg.lockConfig(), World: w,
		Keep: cfg.keep(), Slotted: topologies[cfg.Topology] == resp.Cluster,
	})
	e.exec.Init(w.Go, cfg.Executor)
	e.observer, e.background, e.logger = ofAcquisitions(cfg.Observer), cfg.Observer, cfg.Logger
	e.calls.Init(&e.exec, maxCalls)
	timers := cfg.wheel
	timers.Clock, timers.OnRebuild = w.Clock, e.wheelRebuilt
	e.table.SetTimers(w.Timers(timers), e.renewed)
	if len(cfg.ignored) > 0 {
		e.log(slog.LevelWarn, "pawl: the URL has settings of other clients, which mean nothing here: "+strings.Join(cfg.ignored, ", "))
	}
	client := cfg.client()
	client.ClientName = inspect.ClientName(cfg.ClientName, e.table.ID)
	client.Clock, client.MaxPause = w.Clock, e.maxPause
	if cfg.Logger != nil {
		client.Logger = slog.New(connectionLog{e})
	}
	client.Scripts = script.Texts()
	// The client may begin to connect, and report it, before the table has it.
	ready := make(chan struct{})
	e.table.SetClient(w.Client(client, env.Events{
		Connection: func(s resp.State, lane env.Lane) {
			<-ready
			e.connection(s, lane)
		},
		Outage: e.outage,
		Routes: func() {
			<-ready
			e.table.Rerouted()
		},
	}))
	if !cfg.NoInspect {
		e.table.Listener = inspect.NewListener(inspect.Config{
			Client: e.table.Client, Timers: e.table.Timers, Clock: w.Clock, Verb: e.table.Verb, Spawn: e.exec.Spawn,
			Busy: e.busy, Answer: e.answer, Refused: e.notInspected,
		})
	}
	close(ready)
	attach(e.background, e)
	if w.OnStart != nil {
		w.OnStart(e.inside)
	}
	if w.Lose != nil {
		w.Lose(func(key string, why uint8) int { return e.table.LoseHolds(key, lock.Loss(why)) })
	}
	return e
}

// notInspected is called when the server refuses the channel of questions.
func (e *Engine) notInspected(why error) {
	e.log(slog.LevelInfo, "pawl: this engine cannot be inspected: the server refuses the channel (see docs/inspect.md; Config.NoInspect turns it off)",
		"channel", inspect.Channel, "err", why)
}

// maxPause bounds the pauses between two attempts to connect while holds wait for their renewal:
// a server that refuses credentials, or is away, may accept them long before a lease ends.
func (e *Engine) maxPause() time.Duration {
	if !e.table.Renewer.Any() {
		return 0
	}
	return max(e.cfg.Lease/12, 100*time.Millisecond)
}

// connection hears of connections that come and go.
func (e *Engine) connection(s resp.State, lane env.Lane) {
	if s.Up {
		e.table.Up(s.Role, lane)
		e.log(slog.LevelDebug, "pawl: connected", "addr", s.Addr, "role", s.Role.String(), "lane", s.Lane)
	} else {
		e.table.Down(s.Role)
		e.log(slog.LevelDebug, "pawl: connection lost", "addr", s.Addr, "role", s.Role.String(), "lane", s.Lane, "err", s.Err)
	}
	e.connChanged(s)
}

// wheelRebuilt hears that the timers were rebuilt. If the wall clock stepped, the
// server's may have too, and leases count on it: all are renewed at once.
func (e *Engine) wheelRebuilt(reason string) {
	e.log(slog.LevelWarn, "pawl: the timing wheel was rebuilt", "reason", reason)
	if reason == wheel.RebuildClockStepped {
		e.table.Renewer.All()
	}
}

// Ping checks that the server answers within Config.CommandTimeout, over an ordinary
// connection. In a cluster it asks one of the nodes. While the latest attempt to connect has failed
// and the next one is not due, it fails at once.
func (e *Engine) Ping(ctx context.Context) error {
	_, err := startQuery(ctx, Mutex{home: e}, querySpec[struct{}]{
		effect:   readOnly,
		failFast: true,
		encode:   func(dst []byte, _ resp.ScriptForm) []byte { return wire.AppendCommand(dst, "PING") },
		result:   func(_ resp.Value, why error) (struct{}, error) { return struct{}{}, why },
	}, true).answer(ctx)
	return err
}

// Ready returns nil while New would succeed: the deployment is known, and all connections to a
// primary are up. Otherwise the error Is ErrUnavailable, and says why. Ready does no I/O, so it may be
// called as often as you like, from a readiness probe for instance. What it cannot know is whether the
// server answers at this moment: see Ping.
func (e *Engine) Ready() error {
	if e.table.Closing() {
		return ErrClosed
	}
	if why := e.table.Client.Ready(); why != nil {
		return lockerr.Wrap(ErrUnavailable, why)
	}
	return nil
}

// ID returns the engine's UUID. It is the part before the colon of every owner that the
// engine uses.
func (e *Engine) ID() string { return e.table.ID }

// String names the engine and its servers.
func (e *Engine) String() string {
	if e == nil || e.core == nil || e.table.ID == "" {
		return "Engine(none)"
	}
	return "Engine(" + e.table.ID + " at " + e.cfg.Topology + " " + strings.Join(e.cfg.Addrs, ",") + ")"
}

// noEngine has an executor for the futures of a zero Mutex and its like.
func noEngine() *Engine {
	e := &Engine{new(core)}
	e.table.Engine = (*driverPort)(e)
	return e
}

func (e *Engine) owns(owner string) bool {
	number, ok := strings.CutPrefix(owner, e.table.ID+":")
	return ok && !strings.HasPrefix(number, "-") // see retire.lua
}

// engineOf is the engine that a shard is of.
func engineOf(s *driver.Shard) *Engine { return (*Engine)(s.Table.Engine.(*driverPort)) }

// driverPort is an Engine as its table sees it: a driver.Engine.
type driverPort Engine

// LossError implements driver.Engine.
func (f *driverPort) LossError(k uint8, name string, why lock.Loss) error {
	lost := &LostError{Name: name, Reason: LostReason(why), what: kind.Kind(k).What()}
	if why == lock.NotRenewed {
		e := (*Engine)(f)
		if why := e.unrenewed(e.table.Client.Route(name)); why != nil {
			lost.Err = &notRenewed{why}
		}
	}
	return lost
}

// unrenewed is what keeps, or kept a moment ago, renewals from being acknowledged; nil if that is not
// known.
func (e *Engine) unrenewed(route uint64) error {
	if why := e.table.Client.RenewalError(route); why != nil {
		return why
	}
	return e.failures.Latest(e.table.Client.AddrOf(route), e.clock.Now(), e.cfg.Lease)
}

// notRenewed is NotRenewed with its cause.
type notRenewed struct{ why error }

func (e *notRenewed) Error() string { return NotRenewed.String() + ": " + lockerr.Text(e.why) }
func (e *notRenewed) Unwrap() error { return e.why }

// AckError implements driver.Engine.
func (f *driverPort) AckError(k uint8, ack *resp.Ack) error {
	return &AckError{Acked: ack.Acked, Wanted: ack.Wanted, Away: ack.Away, Cause: ack.Err, waited: f.cfg.AckTimeout, what: kind.Kind(k).What()}
}

// NotPublished implements driver.Engine.
func (f *driverPort) NotPublished(name string) { (*Engine)(f).logNotPublished(name) }

// Spawn implements driver.Engine.
func (f *driverPort) Spawn(run func()) { f.exec.Spawn(run) }

func newUUID(secret func([]byte)) string {
	var b [16]byte
	secret(b[:])
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// closing is the end of an engine.
//
//	open --Shutdown: refuse new, fail waiters, wait for holders--+
//	  |                                                          v
//	  +--Close------------------> closing: fail waiters, tell holders, release
//	                               |   table empty, or CloseTimeout
//	                               v
//	                            closed: connections, wheel, callbacks ended
type closing struct {
	asked atomic.Bool
	over  chan struct{} // closed when err is the result of Close
	err   error
}

// Close ends every hold with reason EngineClosed and every waiting acquisition with
// ErrClosed, releases the locks on the server (one with a MinHold stays taken for the rest
// of that), and ends all connections and goroutines.
// Permits of semaphores are given back, too, after their Done is closed.
// It waits for callbacks and calls of the Observer that are running. All of this takes at most
// Config.CloseTimeout, if the Dialer, Credentials and AddrMap return when they should.
//
// The error says what was not done by then. ErrOutcomeUnknown: some locks were not
// released, for want of time or because the server refused it, and end with their leases;
// permits have none, and stay taken.
// ErrPending: every lock was released, but a callback or the Observer has not returned. Calling
// Close again returns the same error.
//
// Do not call Close from a callback or the Observer: Close waits for it, so the call takes the
// whole CloseTimeout and returns ErrPending.
func (e *Engine) Close() error {
	if e.closed.asked.CompareAndSwap(false, true) {
		defer close(e.closed.over)
		e.closed.err = e.close()
		return e.closed.err
	}
	e.world.Wait(e.closed.over, nil, nil)
	return e.closed.err
}

// Shutdown lets work finish. It refuses new acquisitions, fails those that wait, waits until every hold has
// been unlocked or ctx ends, and then closes the engine. Meanwhile you can unlock, release permits, extend a
// hold, and count a latch down. Everything else returns ErrClosed: re-entries and Downgrade, State and
// ForceUnlock, Available and Await, too. It also waits for holds that were lost while a server was out of
// reach, as long as the server may have them: for the lease, or for the leases of the readers beside a writer.
// If ctx ends first, the remaining holds end as with Close, and the error has the context's cause and Is
// ErrClosed, or what Close returns if that fails. With a nil ctx it does nothing and returns ErrInvalid.
//
// First shut down what still takes locks, such as an HTTP server, and end the contexts of loops
// that hold a lock: Shutdown does not end these.
func (e *Engine) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return lockerr.ErrNoContext
	}
	e.table.Shut()
	e.table.Pending.Close()
	e.table.StopWaiting()
	if !e.table.AwaitEmpty(ctx.Done()) {
		err := context.Cause(ctx)
		if closed := e.Close(); closed != nil {
			return lockerr.Wrap(err, closed)
		}
		return lockerr.Wrap(err, ErrClosed)
	}
	return e.Close()
}

func (e *Engine) close() error {
	e.table.Close()
	e.table.Listener.Close()
	timeout, stop := e.world.After(e.cfg.CloseTimeout)
	defer stop()

	e.table.Pending.Close()
	e.table.StopWaiting()
	e.table.EndHolds()
	clean := e.table.AwaitEmpty(timeout)
	e.table.Renewer.Close()
	_ = e.table.Client.Close() // fails what is unanswered: see lock.ClientClosed
	e.table.Drop()
	e.table.Timers.Close()
	quiet := e.awaitQuiet(timeout)
	e.exec.Close()
	refused, delayed := e.table.Refused()
	switch why := cmp.Or(refused, delayed); {
	case !clean && why != nil:
		return lockerr.Wrap(ErrOutcomeUnknown, errNotClean, why)
	case !clean:
		return lockerr.Wrap(ErrOutcomeUnknown, errNotClean)
	case refused != nil:
		return lockerr.Wrap(ErrOutcomeUnknown, errNotReleased, refused)
	case !quiet:
		return lockerr.Wrap(ErrPending, errNotQuiet)
	}
	return nil
}

// awaitQuiet waits until no callback and no call of the Observer runs any more.
func (e *Engine) awaitQuiet(stop <-chan struct{}) bool {
	idle := e.exec.Idle()
	if e.world.Wait(idle, stop, nil) == 0 {
		return true
	}
	select {
	case <-idle: // both
		return true
	default:
		return false
	}
}
