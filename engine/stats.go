package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/env"
	"github.com/pawl-lock/pawl/engine/internal/inspect"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/quorum"
	"github.com/pawl-lock/pawl/engine/internal/watchdog"
	"github.com/pawl-lock/pawl/resp"
)

// Stats is a snapshot of an engine. (plugin/pawlprom exports it to Prometheus, with the events of an Observer.)
// Its parts are not taken at the same instant. Permits of a semaphore count as a hold, however many they are,
// and a waiter for a semaphore or a latch as an acquisition.
type Stats struct {
	// Held counts live holds, re-entries included. Waiting counts acquisitions without
	// a result, InFlight commands without an answer, Channels subscribed channels of locks.
	Held, Waiting, InFlight, Channels int
	// OldestHold is how long the oldest hold has been held, permits of a Semaphore apart; 0 without one.
	OldestHold time.Duration

	// Acquired, Released and Renewed count holds, re-entries included. In the end each hold counts
	// as released or lost, once. A release with an unknown outcome counts as released. NotAcquired
	// counts acquisitions that ended without the lock, for whatever reason. For LockMany, Multi and
	// RedLock each lock counts, in every try.
	Acquired, Released, Renewed, NotAcquired uint64
	// Lost counts holds lost, by reason.
	Lost map[LostReason]uint64
	// HandedOver counts grants of a lock that another holder of this process had handed over, or
	// passed on by a command, and readers that joined others: see Config.HandOverTime.
	HandedOver uint64
	// Compensations counts releases of owners that nobody wanted, and of holds that were lost.
	// InDoubt counts those of them whose acquire had an unknown outcome.
	Compensations, InDoubt uint64
	// UnknownOutcomes counts calls of Unlock that returned ErrOutcomeUnknown, and commands of
	// semaphores and latches that were given up without an answer.
	UnknownOutcomes uint64
	// NotAcked counts grants, re-entries and extensions that too few replicas
	// acknowledged.
	NotAcked uint64
	// Leaked counts holds that were dropped without Unlock.
	Leaked uint64
	// EventsDropped counts calls of the Observer and of the logger that did not fit into their queue.
	EventsDropped uint64

	// Commands, Messages, BytesIn and BytesOut count what went over the connections. Redirects
	// counts commands that another node of the cluster had to take, Reconnects how
	// often a connection came back.
	Commands, Messages, BytesIn, BytesOut uint64
	Redirects                             uint64
	Reconnects                            int
	// Connected counts the servers, of those that serve names, whose connections are all up.
	// DownSince has the others, by address, and since when one of their connections is missing.
	Connected int
	DownSince map[string]time.Time
	// WheelRebuilds is how often the timing wheel was replaced.
	WheelRebuilds uint64
}

// Stats returns a snapshot. It visits every hold, which takes some 50 ns each: cheap, but not cheap
// enough for a hot path.
func (e *Engine) Stats() Stats {
	n, client := e.table.Counters(), e.table.Client.Stats()
	s := Stats{
		Held: n.Held, Waiting: n.Pending,
		InFlight: client.InFlight, Channels: client.Channels,
		OldestHold: e.table.OldestHold(),
		Acquired:   n.Acquired, Released: n.Released, Renewed: n.Renewed,
		NotAcquired: n.NotAcquired,
		Lost:        make(map[LostReason]uint64), HandedOver: n.HandedOver,
		Compensations: n.Compensations, InDoubt: n.InDoubt,
		UnknownOutcomes: n.Unknown, NotAcked: n.Unacked, Leaked: n.Leaked,
		EventsDropped: e.eventsDropped.Load(),
		Commands:      client.Commands, Messages: client.Messages, BytesIn: client.BytesIn, BytesOut: client.BytesOut,
		Redirects: client.Redirects, Reconnects: client.Reconnects,
		WheelRebuilds: e.table.Timers.Stats().Rebuilds.Total(),
	}
	for reason, n := range n.Lost {
		if n > 0 {
			s.Lost[LostReason(reason)] = n
		}
	}
	if e.table.Listener.Listening() {
		s.Channels-- // that of questions
	}
	s.Connected, s.DownSince = e.connected()
	return s
}

// connected is what Stats say of the servers.
func (e *Engine) connected() (n int, downSince map[string]time.Time) {
	missing, n := e.table.Client.Missing()
	now, wall := e.clock.Now(), e.clock.Wall()
	for addr, at := range missing {
		if downSince == nil {
			downSince = make(map[string]time.Time)
		}
		downSince[addr] = wall.Add(-now.Sub(at))
	}
	return n, downSince
}

// inside is what the world may look at: see env.Env.
func (e *Engine) inside() (in env.Snapshot) {
	add := func(name string, urgent bool, view any) {
		in.Names++
		if urgent {
			in.Urgent++
		}
		in.States = append(in.States, fmt.Sprintf("%q: %+v", name, view))
	}
	for i := range e.table.Shards() {
		sh := &e.table.Shards()[i]
		sh.Lock()
		for _, r := range sh.Locks.All() {
			add(r.Name, r.Urgent(), r.View())
		}
		for _, c := range sh.Counts() {
			add(c.Name, c.Urgent(), c.View())
		}
		sh.Unlock()
	}
	for _, l := range e.table.Recovery.View().Lanes {
		in.Listed += len(l.Urgent) + len(l.Tries)
		in.Out += l.Out
		in.States = append(in.States, fmt.Sprintf("a lane, up %v: %d urgent, %d tries stalled, %d out", l.Lane.Up(), len(l.Urgent), len(l.Tries), l.Out))
	}
	in.Many = len(e.table.Pending.Listed())
	in.Watched = e.watches.Len() + e.table.Pending.Watched()
	return in
}

// EngineInfo is an engine, or a client of Redisson.
type EngineInfo struct {
	// ID is the part of its owners before the colon.
	ID string
	// Answered: it is alive, and Host, PID, Service and Labels are what it says of itself; see
	// Config.Service.
	Answered bool
	// Contested: another answer came in its name. At least one of them lies; both are in LockInfo.Engines.
	Contested bool
	Host      string
	PID       int
	Service   string
	Labels    map[string]string
	// Addr is the address, as the server sees it, of an engine that did not answer: it hangs, or does
	// not listen (Config.NoInspect). If it is empty, the process has ended or is cut off, or it is no
	// engine of Pawl: Redisson does not tell the server its id. Hidden is why this user may not see
	// addresses (CLIENT LIST).
	Addr   string
	Hidden error
}

// answer is what the engine says to a question of package inspect.
func (e *Engine) answer(q *inspect.Question, late func() bool) *inspect.Answer {
	st := e.table.Counters()
	a := &inspect.Answer{
		Engine: e.table.ID, Host: hostname(), PID: os.Getpid(), Service: e.cfg.Service, Labels: e.cfg.Labels,
		Held: st.Held, Waiting: st.Pending,
	}
	if q.DB == e.cfg.DB { // else its names are other locks
		e.table.Answer(a, q, late, e.redLockWaits(), func(c lock.Context) []inspect.Carried {
			held, _ := c.(*heldContext)
			return held.carriedHere(e)
		})
	}
	return a
}

// redLocks are the RedLocks that are listed.
func (e *Engine) redLocks() (list []*severalHold) {
	for _, t := range e.table.Pending.Listed() {
		if q, is := t.(*severalHold); is && q.Policy == quorum.Majority {
			list = append(list, q)
		}
	}
	return list
}

// busy reports whether the engine has any name or RedLock; see inspect.Config.
func (e *Engine) busy() (now bool, sofar uint64) {
	now, sofar = e.table.Busy()
	return now || len(e.redLocks()) > 0, sofar
}

// originOf is what is remembered of an acquisition for those who look, nil if nothing is: the holds that its
// context carries, and the call site, if that is recorded.
func (e *Engine) originOf(c *heldContext) *lock.Origin {
	carries := c != nil && c.hold != nil
	if !carries && !e.cfg.CallSites || e.cfg.NoInspect {
		return nil
	}
	o := new(lock.Origin)
	if carries {
		o.Under = c
	}
	if e.cfg.CallSites {
		o.Stack = inspect.Stack(1)
	}
	return o
}

// noteOrigin keeps the call site for the hold. The caller holds the shard's lock.
func (a *acquisition) noteOrigin(h *lock.Hold) {
	if x := a.Extra(); x != nil && x.Origin != nil && x.Origin.Stack != nil {
		a.Shard.Note(h, &lock.Origin{Stack: x.Origin.Stack})
	}
}

// hostname is that of the machine, as far as it is known.
var hostname = sync.OnceValue(func() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
})

var (
	errNotClean    = errors.New("Close ran into Config.CloseTimeout: some locks end with their leases, or permits of a Semaphore stay taken")
	errNotReleased = errors.New("the server refused to release some locks, which end with their leases, or permits of a Semaphore, which stay taken")
	errNotQuiet    = errors.New("Close ran into Config.CloseTimeout: every lock was released, but a callback or the Observer has not returned (one that calls Close waits for itself)")
)

// maxCalls bounds the calls of the Observer and of the logger that wait.
const maxCalls = 1 << 16

// report has the Observer or the logger called, after what is to be reported before. It never blocks, and may
// be called under any lock.
func (e *Engine) report(call func()) {
	if !e.calls.Push(call) {
		e.eventsDropped.Add(1)
	}
}

// log writes to Config.Logger, whose handler is the user's: all of it, the query
// whether it wants the level too, runs on the goroutine that calls the Observer.
func (e *Engine) log(level slog.Level, text string, args ...any) {
	if e.logger != nil {
		e.report(func() { e.logger.Log(context.Background(), level, text, args...) })
	}
}

// connectionLog is the Config.Logger of the resp client, which logs on the goroutines that
// connect: they neither wait for the user's handler nor end with it.
type connectionLog struct{ e *Engine }

// Enabled implements slog.Handler.
func (connectionLog) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (l connectionLog) Handle(_ context.Context, r slog.Record) error {
	h := l.e.logger.Handler()
	l.e.report(func() {
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

// outage is told when a server is away, and when it is back: one line each, however many
// connections and attempts. It runs under a lock of the client; what it has to count is counted where
// the line is written.
func (e *Engine) outage(o resp.Outage) {
	if e.logger == nil || e.table.Closing() {
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
	e.report(func() {
		args := []any{"addr", o.Addr, "err", o.Err}
		holds, first := e.table.Renewer.Held(func(slot uint16) bool { return e.table.Client.AddrOf(uint64(slot)) == o.Addr })
		args = append(args, "holds", holds)
		if holds > 0 {
			args = append(args, "first_ends_in", max(first.Sub(now), 0).Round(time.Millisecond))
		}
		e.logger.Log(context.Background(), slog.LevelWarn, "pawl: no connection to a server, trying again", args...)
	})
}

func (e *Engine) logNotRenewed(r watchdog.BatchResult) {
	level := slog.LevelWarn
	if e.failures.Again(e.table.Client.AddrOf(uint64(r.Slot)), e.clock.Now(), e.cfg.Lease, r.Err) {
		level = slog.LevelDebug
	}
	for i, name := range r.Names {
		r.Names[i] = lockerr.Shorten(name)
	}
	e.log(level, "pawl: a renewal failed, trying again", "holds", r.Holds, "locks", r.Names, "err", r.Err)
}

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
