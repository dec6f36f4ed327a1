package bench

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/bench/internal/latency"
)

// worker is one goroutine's share of a closed loop. Its fields are the goroutine's
// until done is closed, pairs and latency apart; a stuck worker's are never read.
type worker struct {
	pair    func(ctx context.Context) error
	pairs   atomic.Int64
	errors  int64
	err     error // the first
	latency *latency.Recorder
	ended   time.Time
	done    chan struct{}
}

// round is one run of all workers.
type round struct {
	begin chan struct{}
	stop  atomic.Bool
}

// pause is after a failure, so that a server that is away is not asked a million
// times a second, nor the first error buried under the others.
const pause = time.Millisecond

func (w *worker) run(ctx context.Context, r *round) {
	defer close(w.done)
	<-r.begin
	last := time.Now()
	for !r.stop.Load() {
		err := w.pair(ctx)
		now := time.Now()
		if err != nil {
			w.failed(err)
			sleep(ctx, pause)
			now = time.Now()
		} else {
			w.pairs.Add(1)
			w.latency.Record(now.Sub(last))
		}
		last = now
	}
	w.ended = last
}

func (w *worker) failed(err error) {
	w.errors++
	if w.err == nil {
		w.err = err
	}
}

// runRound lets the workers run for d, or until ctx ends, and waits for them. Those
// that still wait after patience are stuck: they are returned, their contexts are
// cancelled and they are left to themselves. ready is called when all workers are
// at the start, over when d has passed and they still run, tick now and then.
func runRound(ctx context.Context, workers []*worker, d, patience time.Duration, ready, over func() error, tick func(time.Duration)) (stuck map[*worker]bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := startWorkers(ctx, workers)
	err = ready()
	if err != nil {
		r.stop.Store(true)
	}
	began := time.Now()
	close(r.begin)
	for left := d; err == nil && left > 0; left = d - time.Since(began) {
		if !sleep(ctx, min(left, tickEvery)) {
			break
		}
		tick(time.Since(began))
	}
	if err == nil {
		err = over()
	}
	r.stop.Store(true)
	stuck = awaitAll(workers, patience)
	return stuck, err
}

// startWorkers starts the workers, which begin when the round does and end with ctx, if not before.
func startWorkers(ctx context.Context, workers []*worker) *round {
	r := &round{begin: make(chan struct{})}
	for _, w := range workers {
		w.done = make(chan struct{})
		// One of its own, as the requests of a service have.
		own, cancel := context.WithCancel(ctx)
		go func() {
			defer cancel()
			w.run(own, r)
		}()
	}
	return r
}

// tickEvery is how often progress is told.
const tickEvery = 250 * time.Millisecond

// awaitAll waits for the workers and returns those that are not done after patience.
func awaitAll(workers []*worker, patience time.Duration) map[*worker]bool {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	stuck := make(map[*worker]bool)
	late := false
	for _, w := range workers {
		if !late {
			select {
			case <-w.done:
				continue
			case <-deadline.C:
				late = true // the others have had their time too
			}
		}
		select {
		case <-w.done:
		default:
			stuck[w] = true
		}
	}
	return stuck
}
