package linearizability

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
)

// worker takes and gives back locks until the history is over.
type worker struct {
	h      *history
	rng    *rand.Rand
	engine *atomic.Pointer[engine.Engine]
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
		ctx, cancel := cputime.WithTimeout(context.Background(), 2*w.h.kind.patience)
		asked, used := time.Now(), cputime.Now()
		e := w.engine.Load()
		hold, err := w.h.lock(e, name).Lock(ctx)
		cancel()
		if err != nil {
			w.h.t.Errorf("after the faults: Lock(%q): %v", name, err)
			return
		}
		if d := used.Elapsed(); d > w.h.kind.patience {
			w.h.t.Errorf("after the faults: Lock(%q) took %v", name, d)
		}
		w.work(e, hold, w.h.register.granted(e, hold, asked), 0)
	}
}

// step is one attempt to take a lock, and what follows.
func (w *worker) step() {
	name := w.h.names[w.rng.IntN(len(w.h.names))]
	if w.rng.IntN(4) == 0 {
		name = fmt.Sprint("cold", w.rng.IntN(historyCold))
	}
	e := w.engine.Load()
	m := w.h.lock(e, name)
	// No wait outlives the faults by more than the patience.
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	go func() {
		select {
		case <-ctx.Done():
		case <-w.h.stop:
			patient, stop := cputime.WithTimeout(context.Background(), w.h.kind.patience)
			defer stop()
			select {
			case <-ctx.Done():
			case <-patient.Done():
				w.h.t.Errorf("Lock(%q), begun under faults: not served after them", name)
				cancel()
			}
		}
	}()
	var opts []engine.Option
	var hold *engine.Hold
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
		hold, err = m.Lock(ctx, engine.Wait(time.Millisecond+w.upTo(100*time.Millisecond)))
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
		hold, err = m.Lock(ctx, engine.Lease(20*time.Millisecond+w.upTo(w.h.kind.lease)))
	case 5:
		margin := testkit.Margin(w.h.kind.lease)
		opts = append(opts, engine.MaxHold(margin+time.Millisecond+w.upTo(time.Second)))
		fallthrough
	default:
		hold, err = m.Lock(ctx, opts...)
	}
	if err != nil {
		w.refused(name, err)
		return
	}
	w.work(e, hold, w.h.register.granted(e, hold, asked), w.workTime())
}

// refused checks that an acquisition failed for a reason that it can have here.
func (w *worker) refused(name string, err error) {
	if !errors.Is(err, engine.ErrNotAcquired) || errors.Is(err, engine.ErrInvalid) || errors.Is(err, engine.ErrClosed) && !w.h.kind.closes || errors.Is(err, engine.ErrWrongType) {
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
		return w.upTo(1500 * time.Millisecond)
	case n < 10:
		return w.upTo(20 * time.Millisecond)
	}
	return 0
}

// work looks at the hold all the time, and gives it back.
func (w *worker) work(e *engine.Engine, hold *engine.Hold, c *claim, d time.Duration) {
	end := time.Now().Add(d)
	reentered := false
	for c.look(hold) {
		if !w.h.kind.thieves && w.rng.IntN(3) == 0 {
			w.compare(hold)
		}
		if !reentered && w.rng.IntN(8) == 0 {
			reentered = true // the next one would wait for a child that stays
			w.reenter(e, hold)
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
	ctx, cancel := cputime.WithTimeout(context.Background(), 2*w.h.kind.patience)
	if w.rng.IntN(8) == 0 {
		ctx = w.soon(ctx)
	}
	defer cancel()
	w.h.register.unlock(w.h.t, ctx, hold, c)
}

// compare asks the server whether it has the field of a hold that is live, and for at
// least as long as ValidUntil says.
func (w *worker) compare(hold *engine.Hold) {
	const script = `return {redis.call('HEXISTS', KEYS[1], ARGV[1]), redis.call('PTTL', KEYS[1])}`
	until := hold.ValidUntil()
	answer, err := w.h.s.Process.Do("EVAL", script, "1", hold.Name(), hold.Owner())
	if err != nil {
		return // it is stopped
	}
	now := time.Now()
	pair := answer.([]any)
	switch has, left := pair[0].(int64), time.Duration(pair[1].(int64))*time.Millisecond; {
	case has == 0 && hold.Err() == nil && now.Before(hold.ValidUntil()):
		w.h.t.Errorf("%s: %s is live, and the server does not have it", hold.Name(), hold.Owner())
	case has == 1 && until.After(now.Add(left+time.Millisecond)):
		w.h.t.Errorf("%s: %s is valid for %v, but the server has it for %v only", hold.Name(), hold.Owner(), until.Sub(now), left)
	}
}

// reenter takes the lock once more under its own hold.
func (w *worker) reenter(e *engine.Engine, hold *engine.Hold) {
	ctx, cancel := cputime.WithTimeout(hold.Context(context.Background()), w.h.kind.patience)
	defer cancel()
	asked := time.Now()
	child, err := w.h.lock(e, hold.Name()).Lock(ctx)
	if err != nil {
		closed := w.h.kind.closes && errors.Is(err, engine.ErrClosed)
		if hold.Err() == nil && ctx.Err() == nil && !closed {
			w.h.t.Errorf("%s: re-entry under a live hold: %v", hold.Name(), err)
		}
		return
	}
	if child.Owner() != hold.Owner() {
		// The hold ended on the way, and this is a hold of its own.
		c := w.h.register.granted(e, child, asked)
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
