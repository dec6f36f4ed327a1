package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/watchdog"
	"github.com/pawl-lock/pawl/resp"
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
