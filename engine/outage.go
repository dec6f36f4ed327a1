package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
)

// Ready returns nil while New would succeed: the deployment is known, and all connections to a
// primary are up. Otherwise the error Is ErrUnavailable, and says why. Ready does no I/O, so it may be
// called as often as you like, from a readiness probe for instance. What it cannot know is whether the
// server answers at this moment: see Ping.
func (e *Engine) Ready() error {
	if e.table.Closing() {
		return ErrClosed
	}
	if why := e.table.Client.Ready(); why != nil {
		return reason.Because(ErrUnavailable, why)
	}
	return nil
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

// outage is told when a server is away, and when it is back: one line each, however many
// connections and attempts. It runs under a lock of the client; what it has to count is counted where
// the hooks are called.
func (e *Engine) outage(o resp.Outage) {
	if e.hooks.logger == nil || e.table.Closing() {
		return
	}
	now := e.clock.Now()
	if o.Over {
		e.failing.forget(o.Addr)
		e.log(slog.LevelInfo, "pawl: a server is back", "addr", o.Addr, "after", now.Sub(o.Since).Round(time.Millisecond))
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

// unrenewed is what keeps, or kept a moment ago, renewals from being acknowledged; nil if that is not
// known.
func (e *Engine) unrenewed(route uint64) error {
	if why := e.table.Client.RenewalError(route); why != nil {
		return why
	}
	return e.failing.latest(e.table.Client.AddrOf(route), e.clock.Now(), e.cfg.Lease)
}

// notRenewed is NotRenewed with its cause.
type notRenewed struct{ why error }

func (e *notRenewed) Error() string { return NotRenewed.String() + ": " + reason.Said(e.why) }
func (e *notRenewed) Unwrap() error { return e.why }

// failing are the servers whose renewals fail, so that this is reported once an outage. Its mu may be
// taken under the lock of a shard.
type failing struct {
	mu    sync.Mutex
	since map[string]failure // the latest, by address
}

type failure struct {
	at  clock.Instant
	err error
}

// latest is the latest failure, if it was within a lease.
func (f *failing) latest(addr string, now clock.Instant, lease time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last, failed := f.since[addr]; failed && now.Sub(last.at) < lease {
		return last.err
	}
	return nil
}

// again notes a failure, and reports whether there was another one within a lease: since then nothing
// new is known.
func (f *failing) again(addr string, now clock.Instant, lease time.Duration, err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.since == nil || len(f.since) > 1000 { // servers announce ever new addresses
		f.since = make(map[string]failure)
	}
	last, failed := f.since[addr]
	f.since[addr] = failure{now, err}
	return failed && now.Sub(last.at) < lease
}

// forget is called when an outage ends.
func (f *failing) forget(addr string) {
	f.mu.Lock()
	delete(f.since, addr)
	f.mu.Unlock()
}
