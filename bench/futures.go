package bench

import (
	"context"
	"errors"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// errStuck means that nothing came within the patience.
var errStuck = errors.New("bench: still waiting")

// patience waits for futures, one after the other, each for a limited time. It
// belongs to one goroutine.
type patience struct {
	ctx   context.Context
	limit time.Duration
	timer *time.Timer
	over  bool // it was too long once: from now on nothing is waited for
}

func newPatience(ctx context.Context, limit time.Duration) *patience {
	t := time.NewTimer(limit)
	t.Stop()
	return &patience{ctx: ctx, limit: limit, timer: t}
}

// await returns the future's result, errStuck, or why ctx ended.
func await[T any](p *patience, f *engine.Future[T]) (T, error) {
	v, err := f.Result()
	if err != engine.ErrPending {
		return v, err
	}
	if p.over {
		return v, errStuck
	}
	p.timer.Reset(p.limit)
	defer p.timer.Stop()
	select {
	case <-f.Done():
		return f.Result()
	case <-p.timer.C:
		p.over = true
		return v, errStuck
	case <-p.ctx.Done():
		return v, context.Cause(p.ctx)
	}
}

// window is how many operations are in flight where a scenario only wants them
// done: enough to fill the pipeline, few enough that nobody is overloaded.
const window = 1024

// unlocker unlocks holds, a window of them at a time.
type unlocker struct {
	patience *patience
	pending  [window]*engine.Future[struct{}]
	n        int
	ended    func(error) // told of every outcome
}

// add begins to unlock h, and waits for what was begun a window ago.
func (u *unlocker) add(h *engine.Hold) {
	i := u.n % window
	u.n++
	u.settle(i)
	u.pending[i] = h.UnlockAsync()
}

// flush waits for all.
func (u *unlocker) flush() {
	for i := range u.pending {
		u.settle((u.n + i) % window)
	}
}

func (u *unlocker) settle(i int) {
	f := u.pending[i]
	if f == nil {
		return
	}
	u.pending[i] = nil
	_, err := await(u.patience, f)
	u.ended(err)
}
