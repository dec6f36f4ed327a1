package engine

import (
	"context"

	"github.com/pawl-lock/pawl/engine/internal/executor"
	"github.com/pawl-lock/pawl/engine/internal/kind"
)

// FencedMutex is a Mutex whose grants are counted: each hold has a fencing token, a number
// that is higher than that of every hold of the lock before it. Send the token along with what
// you write, and have the store refuse a write whose token is lower than one that it has seen.
// Then a holder that was paused for longer than its lease, and wakes up after somebody else
// has got the lock, does no harm.
//
// On the wire it is Redisson's RFencedLock. It and a Mutex of the same name are one lock,
// but only the grants of a FencedMutex are counted. Waiters of one process pass it on to
// each other by a command (see Config.HandOver): each hold is a grant of the server's. In a cluster, a
// FencedMutex is not granted while its slot moves to another node; what is held stays held.
//
// The counter is a key of its own, redisson_lock_token:{name}, without an expiry. If it is
// deleted or evicted, or lost in a failover, the tokens begin again; ask for replicas (see Acked)
// to keep them through a failover.
//
// The zero FencedMutex is not usable: its methods return ErrInvalid.
type FencedMutex struct{ Mutex }

// FencedMutex returns the lock of that name in a form that counts its grants. The rules for
// names are those of Mutex.
func (e *Engine) FencedMutex(name string) FencedMutex {
	return FencedMutex{e.mutex(name, kind.Fenced)}
}

// FencedHold is a Hold with a fencing token.
type FencedHold struct {
	_ noCopy
	*Hold
}

// Token returns the fencing token of the hold: at least 1, and higher than those of all holds
// that the lock has had before, in any process. A re-entry has the token of the hold that it
// re-enters.
func (l *FencedHold) Token() int64 {
	l.h.Shard().Lock()
	defer l.h.Shard().Unlock()
	return l.h.Hold.Token()
}

// Lock is Mutex.Lock, with a token. Under a context that carries a hold of the lock without a
// token, a Mutex's, the error Is ErrKind.
func (m FencedMutex) Lock(ctx context.Context, opts ...Option) (*FencedHold, error) {
	return fence(m.Mutex.Lock(ctx, opts...))
}

// TryLock is Mutex.TryLock, with a token.
func (m FencedMutex) TryLock(ctx context.Context, opts ...Option) (*FencedHold, error) {
	return fence(m.Mutex.TryLock(ctx, opts...))
}

// LockAsync is Mutex.LockAsync, with a token.
func (m FencedMutex) LockAsync(ctx context.Context, opts ...Option) *Future[*FencedHold] {
	return fenceAsync(m.Mutex.LockAsync(ctx, opts...))
}

// TryLockAsync is Mutex.TryLockAsync, with a token.
func (m FencedMutex) TryLockAsync(ctx context.Context, opts ...Option) *Future[*FencedHold] {
	return fenceAsync(m.Mutex.TryLockAsync(ctx, opts...))
}

// Do is Mutex.Do, with a token.
func (m FencedMutex) Do(ctx context.Context, fn func(ctx context.Context, h *FencedHold) error, opts ...Option) error {
	return lockAndRun(ctx, m, fn, opts)
}

// TryDo is Mutex.TryDo, with a token.
func (m FencedMutex) TryDo(ctx context.Context, fn func(ctx context.Context, h *FencedHold) error, opts ...Option) (ran bool, err error) {
	return tryAndRun(ctx, m, fn, opts)
}

func fence(h *Hold, err error) (*FencedHold, error) {
	if err != nil {
		return nil, err
	}
	return &FencedHold{Hold: h}, nil
}

// fencing is the future of a FencedMutex: that of the Mutex, with a token.
type fencing struct {
	fut Future[*FencedHold]
	of  *Future[*Hold]
}

func fenceAsync(of *Future[*Hold]) *Future[*FencedHold] {
	f := &fencing{of: of}
	f.fut.source = f
	of.hearDirectly(func(h *Hold, err error) { f.fut.settle(fence(h, err)) })
	return &f.fut
}

// The methods below make it the source of its future.

func (f *fencing) executor() *executor.Executor { return f.of.source.executor() }
func (f *fencing) abandon()                     { f.of.source.abandon() }
func (f *fencing) drop(h *FencedHold)           { f.of.source.drop(h.Hold) }
