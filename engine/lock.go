package engine

import "context"

// Lock is what can be locked and is held as one Hold: a Mutex, a MultiLock, a QuorumLock, or
// PermitSemaphore.Permits. Write code against it that does not care which: a job runner, an
// election, a plugin.
type Lock interface {
	// Name returns the name of the lock as you gave it; of a MultiLock that of the first, and how
	// many more there are.
	Name() string
	// Lock waits for the lock as long as ctx lives, or as long as Wait allows.
	Lock(ctx context.Context, opts ...Option) (*Hold, error)
	// TryLock asks for the lock once, and never waits for it.
	TryLock(ctx context.Context, opts ...Option) (*Hold, error)
	// LockAsync is Lock without the waiting. It never blocks.
	LockAsync(ctx context.Context, opts ...Option) *Future[*Hold]
	// TryLockAsync is TryLock without waiting for the answer. It never blocks.
	TryLockAsync(ctx context.Context, opts ...Option) *Future[*Hold]
	// Do acquires the lock, runs fn and releases the lock; see Mutex.Do.
	Do(ctx context.Context, fn func(ctx context.Context, h *Hold) error, opts ...Option) error
	// TryDo is Do with TryLock: if others hold the lock, fn does not run and the result is
	// (false, nil); see Mutex.TryDo.
	TryDo(ctx context.Context, fn func(ctx context.Context, h *Hold) error, opts ...Option) (ran bool, err error)
}

var (
	_ Lock = Mutex{}
	_ Lock = MultiLock{}
	_ Lock = QuorumLock{}
	_ Lock = permitLock{}
)
