package bench

import (
	"context"
	"errors"
	"time"

	"github.com/pawl-lock/pawl/bench/internal/latency"
	"github.com/pawl-lock/pawl/bench/internal/process"
	"github.com/pawl-lock/pawl/bench/internal/redisadmin"
	"github.com/pawl-lock/pawl/engine"
)

// runWaiters measures pending futures. The names are held by somebody else, as by
// Redisson in another process, so that the heads of all queues have tried, listen
// and sleep: the most that waiting can cost.
func runWaiters(ctx context.Context, server *Server, cfg Config) (*Result, error) {
	ec, err := cfg.engine(server)
	if err != nil {
		return nil, err
	}
	e, err := startEngine(ctx, server, cfg, ec)
	if err != nil {
		return nil, err
	}
	w := &waitersRun{engineRun: e, names: e.names(cfg.Names), futures: make([]*engine.Future[*engine.Hold], cfg.Count)}
	e.result.WaitersResult = &w.own
	w.own = WaitersResult{Names: cfg.Names, Finish: cfg.Finish}
	w.freed = make([]time.Time, cfg.Names)
	return e.close(w.run())
}

type waitersRun struct {
	*engineRun
	own     WaitersResult
	names   []string
	futures []*engine.Future[*engine.Hold] // of name i mod len(names)
	freed   []time.Time                    // when the name's last holder began to release
}

func (w *waitersRun) run() (err error) {
	// The one context of all futures.
	waiting, cancel := context.WithCancel(w.ctx)
	defer cancel()
	foreign := redisadmin.NewForeignHolds(w.server.fleet, w.names)
	defer func() { err = errors.Join(err, foreign.Release()) }() // what was taken before a refusal, too
	if err := foreign.Take(w.cfg.Duration); err != nil {
		return err
	}

	heap := process.LiveHeap()
	w.begin()
	w.fill(waiting)
	w.end(w.refill(waiting))
	w.result.HeapBytes = (process.LiveHeap() - heap) / int64(w.cfg.Count)
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	used := w.idle("waiting")
	w.own.IdleS, w.own.IdleCPUPercent = used.Elapsed.Seconds(), used.CPUPercent()

	w.begin()
	switch w.cfg.Finish {
	case Serve:
		err = w.serve(foreign)
	case Cancel:
		cancel()
		w.collect("cancelling")
	case Abandon:
		for _, f := range w.futures {
			f.Abandon()
		}
		w.collect("abandoning")
	}
	w.end(time.Now())
	if err == nil && w.ctx.Err() != nil {
		err = context.Cause(w.ctx)
	}
	return err
}

// maxUnanswered is how many tries may be unanswered before no more futures are
// started: well below the engine's limit, because each head soon tries again.
const maxUnanswered = 16384

// fill makes the futures. Each first one of a name makes a try at the server, so
// it waits for answers now and then.
func (w *waitersRun) fill(waiting context.Context) {
	for i := range w.futures {
		w.futures[i] = w.eng.Mutex(w.names[i%len(w.names)]).LockAsync(waiting)
		if i%window == window-1 {
			w.drained(maxUnanswered)
			w.cfg.progress("filling", int64(i), int64(w.cfg.Count))
		}
	}
}

// drained waits until at most n commands are unanswered.
func (w *waitersRun) drained(n int) {
	for w.eng.Stats().InFlight > n && sleep(w.ctx, time.Millisecond) {
	}
}

// refill makes those futures again that the engine was too busy for, until all
// wait, and returns when the last one had come to rest. The new one goes to the end
// of its name's queue.
func (w *waitersRun) refill(waiting context.Context) time.Time {
	quiet := 250 * time.Millisecond
	for {
		since, before := w.settled(quiet), w.own.Overloaded
		for i, f := range w.futures {
			if _, err := f.Result(); !errors.Is(err, engine.ErrOverloaded) || w.ctx.Err() != nil {
				continue
			}
			w.own.Overloaded++
			again := w.eng.Mutex(w.names[i%len(w.names)]).LockAsync(waiting)
			dropFromQueue(w.futures, i, len(w.names), again)
			w.drained(0)
		}
		if w.own.Overloaded == before {
			return since
		}
		quiet = time.Second // a name that found the engine busy pauses
	}
}

// dropFromQueue takes element i out of its queue, which is every step-th element,
// and appends last to the queue.
func dropFromQueue[T any](queues []T, i, step int, last T) {
	for ; i+step < len(queues); i += step {
		queues[i] = queues[i+step]
	}
	queues[i] = last
}

// serve releases the foreign holds; every future is granted in its turn, and its
// hold unlocked. Futures of one name are granted in their order, so they can be
// awaited in that order.
func (w *waitersRun) serve(foreign *redisadmin.ForeignHolds) error {
	p := newPatience(w.ctx, w.cfg.patience())
	unlocks := w.unlocker(p, nil)
	for i, f := range w.futures {
		if i < len(w.names) && i%redisadmin.ForeignBatch == 0 {
			now, err := foreign.ReleaseNext(redisadmin.ForeignBatch)
			if err != nil {
				return err
			}
			for j := i; j < min(i+redisadmin.ForeignBatch, len(w.names)); j++ {
				w.freed[j] = now
			}
		}
		h, err := await(p, f)
		if !w.granted(i, h, err, unlocks) {
			return nil // ctx ended
		}
		w.futures[i] = nil
		if i%window == 0 {
			w.cfg.progress("serving", int64(i), int64(w.cfg.Count))
		}
	}
	unlocks.flush()
	return nil
}

// granted notes the outcome of one future. It is false if the run was interrupted.
func (w *waitersRun) granted(i int, h *engine.Hold, err error, unlocks *unlocker) bool {
	name := i % len(w.names)
	switch {
	case err == nil:
		now := time.Now()
		latency.Record(w.latency, now.Sub(w.freed[name]))
		w.freed[name] = now
		w.own.Served++
		unlocks.add(h)
	case w.ctx.Err() != nil:
		return false
	case errors.Is(err, errStuck):
		w.result.Stuck++
		w.futures[i].Abandon()
	default:
		w.result.failed(err)
	}
	return true
}

// collect waits for futures that were cancelled or abandoned.
func (w *waitersRun) collect(stage string) {
	p := newPatience(w.ctx, w.cfg.patience())
	for i, f := range w.futures {
		_, err := await(p, f)
		switch {
		case err == nil:
			w.own.Served++
			f.Abandon()
		case errors.Is(err, errStuck):
			w.result.Stuck++
		case errors.Is(err, engine.ErrNotAcquired):
			w.own.Cancelled++
		default:
			w.result.failed(err)
		}
		w.futures[i] = nil
		if i%window == 0 {
			w.cfg.progress(stage, int64(i), int64(w.cfg.Count))
		}
	}
}
