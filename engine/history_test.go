package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
)

// A history is what several engines do to a few names while the network and the
// server misbehave. Everything is drawn from one seed, which is printed; the order
// of events is the scheduler's, so a seed finds its way back only roughly.
//
//	PAWL_HISTORY=2m PAWL_HISTORY_SEED=1 go test -run TestHistory ./engine
//
// What must hold, in every history:
//
//   - Exclusion: what two holds of a name certainly had never overlaps (register).
//   - Truth: the server has the field of a hold that is live here.
//   - Order: the history of each name is that of one mutex (porcupine).
//   - Liveness: when the faults have stopped everybody is served within seconds.
//   - Cleanliness: in the end nothing is left here or on the server.
type history struct {
	t        *testing.T
	kind     historyKind
	seed     uint64
	s        *redistest.Server
	engines  []*Engine
	proxies  []*faultproxy.Proxy
	names    []string
	register register

	stop   chan struct{} // workers: finish what you are at
	healed time.Time     // when the last fault ended; read after stop is closed
}

// historyKind is a sort of history.
type historyKind struct {
	lease   time.Duration
	timeout time.Duration // CommandTimeout
	// thieves: third parties remove keys. Truth and order are not checked then, and
	// exclusion only between holds with no theft in between.
	thieves bool
	// stops: the server is stopped now and then, and executes late what it finds in
	// its sockets.
	stops bool
	// patience is how long anybody may wait once the faults have stopped.
	patience time.Duration
}

func TestHistoryWithShortLeases(t *testing.T) {
	t.Parallel()
	runHistory(t, historyKind{lease: 600 * time.Millisecond, timeout: 400 * time.Millisecond, stops: true})
}

// Here a missed wake-up is not mended by the end of a lease.
func TestHistoryWithLongLeases(t *testing.T) {
	t.Parallel()
	runHistory(t, historyKind{lease: time.Minute, timeout: time.Second, stops: true})
}

func TestHistoryWithThieves(t *testing.T) {
	t.Parallel()
	runHistory(t, historyKind{lease: 600 * time.Millisecond, timeout: 400 * time.Millisecond, thieves: true})
}

const (
	historyEngines = 3
	historyWorkers = 6 // for each engine
	historyNames   = 5
)

func runHistory(t *testing.T, kind historyKind) {
	length := 4 * time.Second
	if v := os.Getenv("PAWL_HISTORY"); v != "" {
		var err error
		if length, err = time.ParseDuration(v); err != nil {
			t.Fatal(err)
		}
	}
	seed := rand.Uint64()
	if v := os.Getenv("PAWL_HISTORY_SEED"); v != "" {
		var err error
		if seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d", seed)
	kind.patience = 10 * time.Second
	h := &history{t: t, kind: kind, seed: seed, s: server(t), stop: make(chan struct{})}
	h.register.start = time.Now()
	for i := range historyNames {
		h.names = append(h.names, fmt.Sprint("n", i))
	}
	rng := h.rand(0)
	for range historyEngines {
		p := faultproxy.New(t, "tcp", h.s.Addr())
		h.proxies = append(h.proxies, p)
		h.engines = append(h.engines, open(t, "redis://"+p.Addr(), func(c *Config) {
			c.Lease, c.CommandTimeout, c.DialTimeout = kind.lease, kind.timeout, time.Second
			c.Lanes = 1 + rng.IntN(2)
			if rng.IntN(2) == 0 {
				c.transport = resp.TransportStd
			}
		}))
	}
	h.run(length)
}

func (h *history) rand(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(h.seed, stream)) }

func (h *history) run(length time.Duration) {
	var workers, faults sync.WaitGroup
	for i := range historyEngines * historyWorkers {
		w := &worker{h: h, rng: h.rand(100 + uint64(i)), engine: h.engines[i%historyEngines]}
		workers.Go(w.run)
	}
	over := make(chan struct{})
	for i, p := range h.proxies {
		faults.Go(func() { newVandal(h, p, 200+uint64(i)).run(over) })
	}
	faults.Go(func() { newVandal(h, nil, 300).run(over) })

	timer := time.NewTimer(length)
	defer timer.Stop()
	<-timer.C
	close(over)
	faults.Wait()
	h.healed = time.Now()
	close(h.stop)
	done := make(chan struct{})
	go func() { workers.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(h.kind.patience * 3 / 4):
		h.report()
		<-done // the contexts of all waits end
	}
	h.checkLeftovers()
	h.register.check(h.t, h.kind)
}

// report logs what everybody is waiting for, for a test that is about to fail.
func (h *history) report() {
	for _, name := range h.names {
		h.t.Logf("%s on the server: %v, %v ms left", name, h.s.Do("HGETALL", name), h.s.Do("PTTL", name))
	}
	for i, e := range h.engines {
		h.t.Logf("engine %d, %s:", i, e.ID())
		report(h.t, e)
		for i := range e.table {
			sh := &e.table[i]
			sh.mu.Lock()
			for name, r := range sh.resources[kindMutex] {
				h.t.Logf("%s: cmd %d, debts %v", name, r.cmd.what, r.debts != nil)
				if r.wait != nil {
					h.t.Logf("wait %+v, over %v, linger %v", r.wait.Wait, r.wait.over, r.wait.linger)
				}
				for hold := r.hold; hold != nil; hold = hold.child {
					h.t.Logf("hold %d, state %d, until %v", hold.id, hold.state, hold.Until().Sub(e.clock.Now()))
				}
			}
			sh.mu.Unlock()
		}
	}
}

// checkLeftovers looks for what nobody uses any more.
func (h *history) checkLeftovers() {
	t := h.t
	for i, e := range h.engines {
		if h.kind.lease < 5*time.Second { // burned owners are remembered for a lease
			eventually(t, fmt.Sprintf("engine %d knows of no name any more", i), func() bool { return e.resources() == 0 })
		}
		s := e.Stats()
		if s.Held != 0 || s.Waiting != 0 || s.Leaked != 0 {
			t.Errorf("engine %d: %+v", i, s)
		}
		e.recovery.mu.Lock()
		for j := range e.recovery.lanes {
			if l := &e.recovery.lanes[j]; l.out != 0 {
				t.Errorf("engine %d, lane %d: %d paced commands were never answered", i, j, l.out)
			}
		}
		e.recovery.mu.Unlock()
		e.watches.mu.Lock()
		if n := len(e.watches.groups); n != 0 {
			t.Errorf("engine %d watches %d contexts", i, n)
		}
		e.watches.mu.Unlock()
	}
	for i, e := range h.engines {
		if err := e.Close(); err != nil {
			t.Errorf("engine %d: Close: %v", i, err)
		}
	}
	eventually(t, "the server has no key", func() bool { return h.s.Do("DBSIZE") == int64(0) })
	eventually(t, "the server has no channel", func() bool {
		list, _ := h.s.Do("PUBSUB", "CHANNELS").([]any)
		return len(list) == 0
	})
}

// worker takes and gives back locks until the history is over.
type worker struct {
	h      *history
	rng    *rand.Rand
	engine *Engine
}

func (w *worker) run() {
	for {
		select {
		case <-w.h.stop:
			w.last()
			return
		default:
			w.step()
		}
	}
}

// last: everybody is served now, in good time.
func (w *worker) last() {
	for _, name := range w.h.names {
		ctx, cancel := context.WithTimeout(context.Background(), 2*w.h.kind.patience)
		asked := time.Now()
		hold, err := w.engine.Mutex(name).Lock(ctx)
		cancel()
		if err != nil {
			w.h.t.Errorf("after the faults: Lock(%q): %v", name, err)
			return
		}
		if d := time.Since(asked); d > w.h.kind.patience {
			w.h.t.Errorf("after the faults: Lock(%q) took %v", name, d)
		}
		w.work(hold, w.h.register.granted(w.engine, hold, asked), 0)
	}
}

// step is one attempt to take a lock, and what follows.
func (w *worker) step() {
	name := w.h.names[w.rng.IntN(len(w.h.names))]
	m := w.engine.Mutex(name)
	// No wait outlives the faults by more than the patience.
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	go func() {
		select {
		case <-ctx.Done():
		case <-w.h.stop:
			select {
			case <-ctx.Done():
			case <-time.After(w.h.kind.patience):
				w.h.t.Errorf("Lock(%q), begun under faults: not served after them", name)
				cancel()
			}
		}
	}()
	var opts []Option
	var hold *Hold
	var err error
	asked := time.Now()
	switch w.rng.IntN(8) {
	case 0:
		hold, err = m.TryLock(ctx)
	case 1: // a caller that gives up
		short, cancel := context.WithTimeout(ctx, w.upTo(100*time.Millisecond))
		hold, err = m.Lock(short)
		cancel()
	case 2:
		hold, err = m.Lock(ctx, Wait(time.Millisecond+w.upTo(100*time.Millisecond)))
	case 3:
		f := m.LockAsync(ctx)
		_, _ = f.Await(w.soon(ctx))
		if w.rng.IntN(2) == 0 {
			f.Abandon()
			// A grant that came before is ours until the release that Abandon began;
			// nobody could use it.
			return
		}
		hold, err = f.Await(ctx)
	case 4:
		hold, err = m.Lock(ctx, Lease(20*time.Millisecond+w.upTo(w.h.kind.lease)))
	case 5:
		margin := w.engine.margin(w.engine.cfg.Lease)
		opts = append(opts, MaxHold(margin+time.Millisecond+w.upTo(time.Second)))
		fallthrough
	default:
		hold, err = m.Lock(ctx, opts...)
	}
	if err != nil {
		w.refused(name, err)
		return
	}
	w.work(hold, w.h.register.granted(w.engine, hold, asked), w.workTime())
}

// refused checks that an acquisition failed for a reason that it can have here.
func (w *worker) refused(name string, err error) {
	if !errors.Is(err, ErrNotAcquired) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrClosed) || errors.Is(err, ErrWrongType) {
		w.h.t.Errorf("Lock(%q): %v", name, err)
	}
}

func (w *worker) soon(ctx context.Context) context.Context {
	short, cancel := context.WithTimeout(ctx, w.upTo(50*time.Millisecond))
	context.AfterFunc(short, cancel)
	return short
}

func (w *worker) upTo(d time.Duration) time.Duration { return rand64(w.rng, d) }

func rand64(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(d)))
}

// workTime is mostly short, sometimes past a renewal.
func (w *worker) workTime() time.Duration {
	switch n := w.rng.IntN(32); {
	case n == 0:
		return w.upTo(400 * time.Millisecond)
	case n < 10:
		return w.upTo(20 * time.Millisecond)
	}
	return 0
}

// work looks at the hold all the time, and gives it back.
func (w *worker) work(hold *Hold, c *claim, d time.Duration) {
	end := time.Now().Add(d)
	reentered := false
	for c.look(hold) {
		if !w.h.kind.thieves && w.rng.IntN(8) == 0 {
			w.compare(hold)
		}
		if !reentered && w.rng.IntN(8) == 0 {
			reentered = true // the next one would wait for a child that stays
			w.reenter(hold)
		}
		left := time.Until(end)
		if left <= 0 {
			break
		}
		select {
		case <-hold.Done():
		case <-time.After(min(left, w.upTo(10*time.Millisecond))):
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*w.h.kind.patience)
	if w.rng.IntN(8) == 0 {
		ctx = w.soon(ctx)
	}
	defer cancel()
	w.h.register.unlock(w.h.t, ctx, hold, c)
}

// compare asks the server whether it has the field of a hold that is live.
func (w *worker) compare(hold *Hold) {
	has, err := w.h.s.Process.Do("HEXISTS", hold.Name(), hold.Owner())
	if err != nil {
		return // it is stopped
	}
	if has == int64(0) && hold.Err() == nil && time.Now().Before(hold.ValidUntil()) {
		w.h.t.Errorf("%s: %s is live, and the server does not have it", hold.Name(), hold.Owner())
	}
}

// reenter takes the lock once more under its own hold.
func (w *worker) reenter(hold *Hold) {
	ctx, cancel := context.WithTimeout(hold.Context(context.Background()), w.h.kind.patience)
	defer cancel()
	child, err := w.engine.Mutex(hold.Name()).Lock(ctx)
	if err != nil {
		if hold.Err() == nil && ctx.Err() == nil {
			w.h.t.Errorf("%s: re-entry under a live hold: %v", hold.Name(), err)
		}
		return
	}
	if child.Owner() != hold.Owner() {
		// The hold ended on the way, and this is a hold of its own.
		c := w.h.register.granted(w.engine, child, time.Now())
		w.h.register.unlock(w.h.t, ctx, child, c)
		return
	}
	if hold.Err() != nil && child.Err() == nil {
		w.h.t.Errorf("%s: a re-entry outlives its hold", hold.Name())
	}
	if w.rng.IntN(4) > 0 { // else the end of the hold ends it
		_ = child.Unlock(ctx)
	}
}
