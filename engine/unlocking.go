package engine

import (
	"context"

	"github.com/pawl-lock/pawl/engine/internal/executor"
	"github.com/pawl-lock/pawl/engine/internal/machine"
)

// unlocking is one call of Unlock or UnlockAsync that waits for the release.
type unlocking struct {
	machine.Unlock
	fut   Future[struct{}] // what UnlockAsync returns
	ready chan struct{}    // what Unlock waits on: one token; nil for UnlockAsync
	eng   *Engine
}

func newPooledUnlocking() any {
	u := &unlocking{ready: make(chan struct{}, 1)}
	u.Port = u
	return u
}

func (e *Engine) newUnlocking(async bool) *unlocking {
	if !async {
		return e.unlockings.Get().(*unlocking)
	}
	u := &unlocking{eng: e}
	u.Port, u.fut.source = u, u
	return u
}

func (u *unlocking) executor() *executor.Executor { return &u.eng.exec }
func (u *unlocking) abandon()                     {} // a release is never taken back
func (u *unlocking) drop(struct{})                {}

// Deliver implements machine.UnlockPort.
func (u *unlocking) Deliver() {
	if u.ready == nil {
		u.fut.settle(struct{}{}, u.Err)
		return
	}
	u.ready <- struct{}{}
}

// unlock starts the release of h, or joins the one under way, and has u told. The
// caller is a goroutine of the user's, unless byUser is false.
func (h *holding) unlock(u *unlocking, byUser bool) {
	var fx machine.Effects
	h.Shard.Lock()
	h.Unlock(&u.Unlock, &fx)
	h.Shard.Unlock()
	if byUser {
		h.Shard.Table.RunForUser(&fx)
		return
	}
	h.Shard.Table.Run(&fx)
}

// wait is the synchronous half. It gives u back to its pool.
func (u *unlocking) wait(ctx context.Context, h *holding) error {
	select {
	case <-u.ready:
	default:
		if h.engine().world.Wait(u.ready, ctx.Done(), nil) != 0 {
			u.ctxEnded(ctx, h)
		}
	}
	err := u.Err
	u.Unlock = machine.Unlock{Port: u}
	h.engine().unlockings.Put(u)
	return err
}

// ctxEnded goes on waiting if ctx has ended only with the hold, as one does that was made
// from its Context; else nobody waits for the release any more.
func (u *unlocking) ctxEnded(ctx context.Context, h *holding) {
	cause := context.Cause(ctx) // without a lock: it may be the user's context
	if cause == ErrReleased {
		if outer, cancel := h.outside(ctx); outer != nil {
			defer cancel()
			if h.engine().world.Wait(u.ready, outer.Done(), nil) == 0 {
				return
			}
			cause = context.Cause(outer)
		}
	}
	h.Shard.Lock()
	waiting := !u.Told
	if waiting {
		u.Err = h.StopAwaiting(&u.Unlock, cause)
	}
	h.Shard.Unlock()
	if !waiting {
		<-u.ready // the verdict is on its way
	}
}
