package engine

import (
	"context"

	"github.com/pawl-lock/pawl/engine/internal/tally"
)

// Latch is a count that goes down to zero, and those who wait for that. Everybody who uses its
// name on the same server shares it, Redisson's RCountDownLatch included. TrySetCount closes
// it; as long as there is no count, it is open. A Latch is a small value without state of its
// own, and making one costs no I/O. The zero Latch is not usable: its methods return
// ErrInvalid.
//
// Each CountDown is executed once, or not at all, as the operations of a Semaphore are. A
// latch has no lease: the count of a process that dies before its CountDown stays.
//
// Its futures end with their context; that of AwaitAsync with Wait, too. Abandon stops that of
// AwaitAsync only.
type Latch struct{ counter }

// Latch returns the latch of that name. For the name the same is true as for a Mutex; but in a
// cluster it must not contain a brace, because Redisson puts the name in braces for the channel,
// which would be in another slot.
func (e *Engine) Latch(name string) Latch { return Latch{e.counter(name, tally.Latch)} }

// Name returns the name as you gave it.
func (l Latch) Name() string { return l.name }

// TrySetCount closes an open latch with a count of n, and reports whether it did. It leaves one
// that is closed as it is. As with Redisson, a count of 0 leaves a key: the latch is open then, and
// no TrySetCount closes it before a CountDown has deleted the key.
func (l Latch) TrySetCount(ctx context.Context, n int) (bool, error) {
	return begin(ctx, l.counter, request[bool]{what: tally.SetCount, n: n, verdict: l.yes}, true).await(ctx)
}

// CountDown counts down by one. At zero the latch opens, for everybody. It waits for the
// server's answer as long as ctx lives. If that ends before the command was sent, nothing is
// counted: the error has the cause, and Is ErrUnavailable if no server was to be had. After that it
// Is ErrOutcomeUnknown, and the command is repeated in the background until there is an answer, or
// for 50 s.
func (l Latch) CountDown(ctx context.Context) error {
	_, err := l.countDown(ctx, true).await(ctx)
	return err
}

// CountDownAsync is CountDown without the waiting. It never blocks. Abandon takes nothing back,
// and lets a command that is still to be sent be sent: end ctx to prevent that.
//
// No order is promised among operations that are under way at the same time. Await the future of
// a TrySetCount before you count down.
func (l Latch) CountDownAsync(ctx context.Context) *Future[struct{}] {
	return &l.countDown(ctx, false).fut
}

func (l Latch) countDown(ctx context.Context, waits bool) *ask[struct{}] {
	return begin(ctx, l.counter, request[struct{}]{what: tally.CountDown, free: true, verdict: l.nothing}, waits)
}

// Count returns the count: 0 if the latch is open.
func (l Latch) Count(ctx context.Context) (int, error) { return l.look(ctx) }

// Await waits until the latch is open, as long as ctx lives, or as long as Wait allows; no
// other option is for a latch. If it is closed still, the error Is ErrPending and has the
// cause. With a ctx that has ended before, nothing is asked, and the error has the cause alone.
//
// It is enough that the latch opens while Await listens, which usually begins a round trip or two
// after the call; it may be closed again at once. If the message of that is lost, with the
// connection or while a slot moves, Await waits for the next opening.
func (l Latch) Await(ctx context.Context, opts ...Option) error {
	_, err := l.await(ctx, opts, true).await(ctx)
	return err
}

// AwaitAsync is Await without the waiting. Abandon a future that you no longer want.
func (l Latch) AwaitAsync(ctx context.Context, opts ...Option) *Future[struct{}] {
	return &l.await(ctx, opts, false).fut
}

func (l Latch) await(ctx context.Context, opts []Option, waits bool) *ask[struct{}] {
	return begin(ctx, l.counter, request[struct{}]{what: tally.Await, options: opts, free: true, verdict: l.nothing}, waits)
}
