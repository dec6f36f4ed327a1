package bench

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/bench/internal/latency"
	"github.com/pawl-lock/pawl/bench/internal/process"
	"github.com/pawl-lock/pawl/engine"
)

// runHeld measures holds under the watchdog.
func runHeld(ctx context.Context, server *Server, cfg Config) (*Result, error) {
	ec, err := cfg.engine(server)
	if err != nil {
		return nil, err
	}
	h := &heldRun{holds: make([]*engine.Hold, 0, cfg.Count)}
	ec.Observer = engine.ObserverFuncs{OnRenewEnd: h.renewals.add}
	if h.engineRun, err = startEngine(ctx, server, cfg, ec); err != nil {
		return nil, err
	}
	h.result.HeldResult = &h.own
	return h.close(h.run())
}

type heldRun struct {
	*engineRun
	own      HeldResult
	holds    []*engine.Hold
	renewals renewals
}

func (h *heldRun) run() error {
	names := h.names(h.cfg.Count)
	heap := process.LiveHeap()
	h.begin()
	h.fill(names)
	h.end(time.Now())
	if h.ctx.Err() != nil {
		return context.Cause(h.ctx)
	}

	h.renewals.begin()
	used := h.idle("holding")
	h.own.Renewals, h.own.RenewalsPerSecond = h.renewals.end()
	h.own.HeldS, h.own.HeldCPUPercent = used.Elapsed.Seconds(), used.CPUPercent()
	// After the renewals: a hold that has been renewed takes more than a new one.
	h.result.HeapBytes = (process.LiveHeap() - heap) / int64(h.cfg.Count)
	runtime.KeepAlive(names) // which were there before the holds, and are no part of them
	h.own.AllRenewed = used.Elapsed >= firstRenewals(h.cfg.lease())

	h.begin()
	h.empty()
	h.end(time.Now())
	if h.ctx.Err() != nil {
		return context.Cause(h.ctx)
	}
	return nil
}

// fill takes all locks, a window of them at a time.
func (h *heldRun) fill(names []string) {
	type started struct {
		future *engine.Future[*engine.Hold]
		at     time.Time
	}
	var pending [window]started
	p := newPatience(h.ctx, h.cfg.patience())
	settle := func(s *started) {
		if s.future == nil {
			return
		}
		hold, err := await(p, s.future)
		switch {
		case err == nil:
			latency.Record(h.latency, time.Since(s.at))
			h.holds = append(h.holds, hold)
		case errors.Is(err, errStuck):
			h.result.Stuck++
			s.future.Abandon()
		case h.ctx.Err() == nil:
			h.result.failed(err)
		}
		s.future = nil
	}
	for i, name := range names {
		s := &pending[i%window]
		settle(s)
		if h.ctx.Err() != nil {
			return
		}
		*s = started{h.eng.Mutex(name).LockAsync(h.ctx), time.Now()}
		if i%window == 0 {
			h.cfg.progress("locking", int64(i), int64(len(names)))
		}
	}
	for i := range pending {
		settle(&pending[(len(names)+i)%window])
	}
}

// empty unlocks what is held still. The server has the last word on what was lost:
// it tells when a hold is released that it does not have.
func (h *heldRun) empty() {
	unlocks := h.unlocker(newPatience(h.ctx, h.cfg.patience()), func(err error) bool {
		lost := errors.Is(err, engine.ErrLost)
		if lost {
			h.own.Lost++
		}
		return lost
	})
	for i, hold := range h.holds {
		unlocks.add(hold)
		if i%window == 0 {
			h.cfg.progress("unlocking", int64(i), int64(len(h.holds)))
		}
		if h.ctx.Err() != nil {
			break
		}
	}
	unlocks.flush()
}

// renewals counts renewals by the second.
type renewals struct {
	mu struct {
		sync.Mutex
		began   time.Time // zero: not counting
		total   int64
		seconds []int64
	}
}

// add is the engine's Observer.
func (r *renewals) add(ev engine.RenewEnd) {
	if ev.Err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.began.IsZero() {
		return
	}
	second := int(time.Since(r.mu.began) / time.Second)
	for len(r.mu.seconds) <= second {
		r.mu.seconds = append(r.mu.seconds, 0)
	}
	r.mu.seconds[second] += int64(ev.Holds)
	r.mu.total += int64(ev.Holds)
}

func (r *renewals) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.began = time.Now()
}

// end returns the total, and the spread over the full seconds.
func (r *renewals) end() (int64, Spread) {
	r.mu.Lock()
	defer r.mu.Unlock()
	full := int(time.Since(r.mu.began) / time.Second)
	r.mu.began = time.Time{}
	var s Spread
	var sum int64
	for i := range full {
		var n int64
		if i < len(r.mu.seconds) {
			n = r.mu.seconds[i]
		}
		if i == 0 || n < s.Min {
			s.Min = n
		}
		s.Max = max(s.Max, n)
		sum += n
	}
	if full > 0 {
		s.Mean = float64(sum) / float64(full)
	}
	return r.mu.total, s
}
