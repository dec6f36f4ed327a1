package engine

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/executor"
	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/watchdog"
	"github.com/pawl-lock/pawl/resp"
)

// Hooks are functions that the engine calls at events, for metrics and traces. A nil
// one costs a branch. They are called one at a time, in order, on a goroutine of their
// own, a moment after the event. The queue holds 65,536 calls, log lines included; a call that does not fit is dropped and counted in Stats.HooksDropped.
type Hooks struct {
	// Acquired: an acquisition was granted or has failed, also if it failed at once.
	Acquired func(AcquiredEvent)
	// Released: Unlock was called on a live hold, or on one that this hold re-enters; or LockMany,
	// Multi or RedLock gave a lock back, because they did not get all that they need.
	Released func(HoldEvent)
	// Lost: a hold was lost before Unlock was called on it. (If only its Unlock finds that it was
	// lost, Released has been told by then: see what Unlock returns, and Stats.Lost.) Each
	// re-entry of it has an event of its own. Of a RedLock, each server's lock has one, though
	// the whole may still be held.
	Lost func(HoldEvent)
	// Renewed: a renewal script was answered, or failed.
	Renewed func(RenewedEvent)
	// Conn: a connection came up or was lost.
	Conn func(ConnEvent)
}

// AcquiredEvent is the result of an acquisition.
type AcquiredEvent struct {
	Kind  string // "mutex", "spin", "fenced", "fair", "read", "write", "permit" or "semaphore"
	Name  string
	Start time.Time
	Wait  time.Duration // from the call to the result
	// Attempts is how many commands were sent for it; 0 for a semaphore, whose commands many
	// share.
	Attempts int
	// Local: another holder of this process handed it over, or it joined other readers; see
	// Config.HandOverTime.
	Local bool
	Err   error // nil if it was granted
}

// HoldEvent is the end of a hold. Reason is zero unless it was lost.
type HoldEvent struct {
	Name   string
	Owner  string
	Reason LostReason
}

// RenewedEvent is one renewal script.
type RenewedEvent struct {
	Node  string // the server of these holds; "" if none is known
	Holds int
	Lag   time.Duration // how long after it was due it was sent
	RTT   time.Duration
	Err   error
}

// ConnEvent is a change of one connection.
type ConnEvent struct {
	Addr string
	Role string // "lane", "renewal", "pubsub", "durable", "durable renewal"
	Lane int
	Up   bool
	Err  error
}

const maxHooksQueued = 1 << 16

// hookSet calls the hooks, one after another.
type hookSet struct {
	Hooks
	acquired bool
	logger   *slog.Logger // nil: silent
	queue    executor.Queue
	dropped  atomic.Uint64
}

func (s *hookSet) init(h Hooks, logger *slog.Logger, exec *executor.Executor) {
	s.Hooks, s.logger = h, logger
	s.queue.Init(exec, maxHooksQueued)
	s.acquired = h.Acquired != nil
}

func (s *hookSet) push(call func()) {
	if !s.queue.Push(call) {
		s.dropped.Add(1)
	}
}

// hookAcquired tells the hook of a verdict. The caller holds the shard's lock, so that no
// event of the hold can be told before this one.
func (e *Engine) hookAcquired(a *acquisition, local bool) {
	if !e.hooks.acquired {
		return
	}
	x := a.Extra()
	wait := e.clock.Stamp().Sub(x.Start)
	ev := AcquiredEvent{Start: e.clock.Wall().Add(-wait), Wait: wait, Attempts: int(a.Attempts), Local: local, Err: a.fut.err}
	ev.Kind, ev.Name = kind.Kind(a.Kind).String(), x.Name
	e.tellAcquired(ev)
}

func (e *Engine) tellAcquired(ev AcquiredEvent) {
	e.hooks.push(func() { e.hooks.Acquired(ev) })
}

func (e *Engine) hookReleased(h *lockHold) {
	if e.hooks.Released == nil {
		return
	}
	ev := HoldEvent{Name: h.Name, Owner: h.Owner().String()}
	e.hooks.push(func() { e.hooks.Released(ev) })
}

func (e *Engine) hookLost(h *lockHold, why LostReason) {
	if e.hooks.Lost == nil {
		return
	}
	ev := HoldEvent{Name: h.Name, Owner: h.Owner().String(), Reason: why}
	e.hooks.push(func() { e.hooks.Lost(ev) })
}

func (e *Engine) hookRenewed(r watchdog.BatchResult) {
	if r.Err != nil {
		level := slog.LevelWarn
		if e.failures.Again(e.table.Client.AddrOf(uint64(r.Slot)), e.clock.Now(), e.cfg.Lease, r.Err) {
			level = slog.LevelDebug
		}
		e.log(level, "pawl: a renewal failed, trying again", "holds", r.Holds, "locks", shortened(r.Names), "err", r.Err)
	}
	if e.hooks.Renewed == nil {
		return
	}
	ev := RenewedEvent{Node: e.table.Client.AddrOf(uint64(r.Slot)), Holds: r.Holds, Lag: r.Lag, RTT: r.RTT, Err: r.Err}
	e.hooks.push(func() { e.hooks.Renewed(ev) })
}

// outage is told when a server is away, and when it is back: one line each, however many
// connections and attempts. It runs under a lock of the client; what it has to count is counted where
// the hooks are called.
func (e *Engine) outage(o resp.Outage) {
	if e.hooks.logger == nil || e.table.Closing() {
		return
	}
	now := e.clock.Now()
	if o.Over {
		e.failures.Forget(o.Addr)
		text := "pawl: a server is back"
		if o.Err != nil {
			text = "pawl: a server that was away is not needed any more"
		}
		e.log(slog.LevelInfo, text, "addr", o.Addr, "after", now.Sub(o.Since).Round(time.Millisecond))
		return
	}
	e.hooks.push(func() {
		args := []any{"addr", o.Addr, "err", o.Err}
		holds, first := e.table.Renewer.Held(func(slot uint16) bool { return e.table.Client.AddrOf(uint64(slot)) == o.Addr })
		args = append(args, "holds", holds)
		if holds > 0 {
			args = append(args, "first_ends_in", max(first.Sub(now), 0).Round(time.Millisecond))
		}
		e.hooks.logger.Log(context.Background(), slog.LevelWarn, "pawl: no connection to a server, trying again", args...)
	})
}

// shortened are names for a log line.
func shortened(names []string) []string {
	for i, name := range names {
		names[i] = lockerr.Shorten(name)
	}
	return names
}

func (e *Engine) hookConn(s resp.State) {
	if e.hooks.Conn == nil {
		return
	}
	ev := ConnEvent{Addr: s.Addr, Role: s.Role.String(), Lane: s.Lane, Up: s.Up, Err: s.Err}
	e.hooks.push(func() { e.hooks.Conn(ev) })
}

// log writes to Config.Logger, whose handler is the user's: all of it, the query
// whether it wants the level too, runs where the hooks do.
func (e *Engine) log(level slog.Level, text string, args ...any) {
	if e.hooks.logger != nil {
		e.hooks.push(func() { e.hooks.logger.Log(context.Background(), level, text, args...) })
	}
}

// connectionLog is the Config.Logger of the resp client, which logs on the goroutines that
// connect: they neither wait for the user's handler nor end with it.
type connectionLog struct{ e *Engine }

// Enabled implements slog.Handler.
func (connectionLog) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (l connectionLog) Handle(_ context.Context, r slog.Record) error {
	h := l.e.hooks.logger.Handler()
	l.e.hooks.push(func() {
		if ctx := context.Background(); h.Enabled(ctx, r.Level) {
			_ = h.Handle(ctx, r)
		}
	})
	return nil
}

// WithAttrs implements slog.Handler; resp does not use it.
func (l connectionLog) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements slog.Handler; resp does not use it.
func (l connectionLog) WithGroup(string) slog.Handler { return l }

func (e *Engine) logLost(h *lockHold, why LostReason) {
	if why == EngineClosed {
		return
	}
	args := []any{"lock", lockerr.Shorten(h.Name), "reason", why.String()}
	if why == NotRenewed {
		if cause := e.unrenewed(h.Entry.Route); cause != nil {
			args = append(args, "err", cause)
		}
	}
	e.log(slog.LevelWarn, "pawl: a lock was lost", args...)
}

func (e *Engine) logNotPublished(name string) {
	e.log(slog.LevelError, "pawl: released, but this user may not publish, or the cluster lacks the messages that ShardedPubSub asks for: waiters sleep until their next look (see the ACL rules in docs/operations.md)",
		"lock", lockerr.Shorten(name))
}
