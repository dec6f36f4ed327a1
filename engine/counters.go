package engine

import (
	"context"

	"github.com/pawl-lock/pawl/engine/internal/counter"
	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// Semaphore is a number of permits that all users of its name on one server share, including
// Redisson's RSemaphore. TrySetPermits sets their number; before that there are none. A Semaphore
// is a small value without state of its own, and making one costs no I/O. The zero Semaphore is not
// usable: its methods return ErrInvalid.
//
// A semaphore has no lease. Permits of a process that dies are lost, until somebody gives
// them back with AddPermits. If one permit is all you need, use a Mutex: it has a lease.
//
// Every operation is executed once, or not at all, even if connections are lost and commands have to
// be sent again: the server keeps the answer of an engine's latest command to a semaphore for a
// minute, in a key {name}:pawl:<Engine.ID>, or name:pawl::<Engine.ID> if the name has a brace. A
// command that stays without an answer for 50 s is given up with ErrOutcomeUnknown. The promise needs
// a server that does not evict keys with an expiry (maxmemory-policy volatile-...), and that has not
// failed over to a replica that lacks an answered command.
//
// While the server is out of reach, one command of a name may be in doubt. Other operations of
// the name in this process wait behind it.
type Semaphore struct{ counterHandle }

// Semaphore returns the semaphore of that name. The rules for names are those of Mutex.
func (e *Engine) Semaphore(name string) Semaphore {
	return Semaphore{e.counter(name, counter.Semaphore)}
}

// Name returns the name as you gave it.
func (s Semaphore) Name() string { return s.name }

// Acquire waits for n permits as long as ctx lives, or as long as Wait and Outage allow; it takes no
// other option. Waiters of one process are served in order: a waiter for many permits is not overtaken
// by waiters for few. Processes compete. For 0 permits nothing is sent.
//
// If it fails, the error is a *NotAcquiredError. Permits that the server grants after ctx has
// ended are given back. ErrOutcomeUnknown: the server may have granted them, and nobody knows;
// if so, they are lost.
func (s Semaphore) Acquire(ctx context.Context, n int, opts ...Option) (*Permits, error) {
	return s.await(ctx, counterSpec[*Permits]{n: n, options: opts, free: true})
}

// TryAcquire waits for one answer of the server. It fails with ErrHeld if fewer than n permits are free, or if
// other callers of this process wait for permits, and with ErrNoPermits if nobody has called TrySetPermits. It
// takes at most Config.CommandTimeout.
func (s Semaphore) TryAcquire(ctx context.Context, n int) (*Permits, error) {
	return s.await(ctx, counterSpec[*Permits]{n: n, once: true})
}

// AcquireAsync is Acquire without the waiting. Abandon a future that you no longer want.
func (s Semaphore) AcquireAsync(ctx context.Context, n int, opts ...Option) *Future[*Permits] {
	return s.future(ctx, counterSpec[*Permits]{n: n, options: opts, free: true})
}

// TryAcquireAsync is TryAcquire without the waiting.
func (s Semaphore) TryAcquireAsync(ctx context.Context, n int) *Future[*Permits] {
	return s.future(ctx, counterSpec[*Permits]{n: n, once: true})
}

func (s Semaphore) await(ctx context.Context, r counterSpec[*Permits]) (p *Permits, err error) {
	if s.home.isObserved() {
		ctx, r.seen = s.home.observe(ctx, s.acquisition(r), false)
		defer finishSync(r.seen, &p, &err)
	}
	return s.acquire(ctx, r, true).await(ctx)
}

func (s Semaphore) future(ctx context.Context, r counterSpec[*Permits]) (fut *Future[*Permits]) {
	if s.home.isObserved() {
		ctx, r.seen = s.home.observe(ctx, s.acquisition(r), true)
		defer finishFuture(r.seen, &fut)
	}
	return &s.acquire(ctx, r, false).fut
}

// acquisition is what an Observer is told of it.
func (s Semaphore) acquisition(r counterSpec[*Permits]) Acquisition {
	return Acquisition{Kind: s.what(), Name: s.name, Permits: r.n, Try: r.once}
}

func (s Semaphore) acquire(ctx context.Context, r counterSpec[*Permits], waits bool) *counterOp[*Permits] {
	r.what = counter.Acquire
	r.verdict = func(p *permits, _ int64, why error) (*Permits, error) {
		if why != nil {
			return nil, notAcquiredA(s.what(), s.name, why)
		}
		return &Permits{p: p}, nil
	}
	return startCounterOp(ctx, s.counterHandle, r, waits)
}

// TrySetPermits gives a semaphore that does not exist n permits, and reports whether it did. It
// does not change one that exists.
func (s Semaphore) TrySetPermits(ctx context.Context, n int) (bool, error) {
	return startCounterOp(ctx, s.counterHandle, counterSpec[bool]{what: counter.Set, n: n, verdict: s.yes}, true).await(ctx)
}

// AddPermits gives the semaphore delta more permits, or takes some away if delta is negative. The
// number of free permits may then be negative.
func (s Semaphore) AddPermits(ctx context.Context, delta int) error {
	_, err := startCounterOp(ctx, s.counterHandle, counterSpec[struct{}]{what: counter.Add, n: delta, verdict: s.nothing}, true).await(ctx)
	return err
}

// Available returns the number of free permits: 0 if the semaphore does not exist.
func (s Semaphore) Available(ctx context.Context) (int, error) { return s.look(ctx) }

// Drain takes all free permits, and returns how many they were. The drained permits belong to
// nobody; return them with AddPermits.
func (s Semaphore) Drain(ctx context.Context) (int, error) {
	return startCounterOp(ctx, s.counterHandle, counterSpec[int]{what: counter.Drain, verdict: s.number}, true).await(ctx)
}

// Permits are what an Acquire was granted. Give them back with Release, once, from any
// goroutine. They have no lease: if nobody releases them, and Close is not called either, they
// are lost.
type Permits struct {
	_ noCopy
	p *permits
}

// permits is what the engine has of Permits. The shard's lock guards it.
type permits struct {
	counter.Permits
	count counterHandle
	done  doneChan
	seen  *observation // nil: nobody observes
}

func newPermits(c counterHandle) *permits {
	p := &permits{count: c}
	p.Port = p
	return p
}

func (p *permits) lock()   { p.count.home.table.Shard(p.count.route).Lock() }
func (p *permits) unlock() { p.count.home.table.Shard(p.count.route).Unlock() }

// Count returns their number.
func (p *Permits) Count() int { return int(p.p.N) }

// Done returns a channel that is closed when they are given back: when Release is called, or
// by Close.
func (p *Permits) Done() <-chan struct{} {
	in := p.p
	in.lock()
	defer in.unlock()
	return in.done.get(in.err() != nil)
}

// Err returns nil while they are held, ErrReleased after Release was called, and a *LostError
// with the reason EngineClosed if Close has given them back.
func (p *Permits) Err() error {
	p.p.lock()
	defer p.p.unlock()
	return p.p.err()
}

// Release gives the permits back. ctx bounds the waiting, never whether they are given back. If ctx
// ends first, the error Is ErrOutcomeUnknown and has the cause, and the release continues in the
// background: it is repeated until the server has answered, unless that takes more than 50 s after
// it was sent. ErrNotHeld: Release was called before. ErrLost: Close came first.
func (p *Permits) Release(ctx context.Context) error {
	a, ends := p.release(true)
	var err error
	if ctx == nil { // then nothing bounds the waiting; and permits must not stay taken for that
		err = p.p.count.about(lockerr.Wrap(ErrOutcomeUnknown, lockerr.ErrNoContext))
	} else {
		a.Pending.Done = ctx.Done()
		_, err = a.await(ctx)
	}
	if ends {
		p.p.seen.released(err, true)
	}
	return err
}

// ReleaseAsync is Release without the waiting.
func (p *Permits) ReleaseAsync() *Future[struct{}] {
	a, ends := p.release(true)
	if ends {
		a.fut.onComplete(func(_ struct{}, err error) { p.p.seen.released(err, false) })
	}
	return &a.fut
}

func (p *Permits) giveBack() { p.release(false) }

// release gives them back. It reports whether an Observer is to be told of that, because it was a user's Release, and
// the first.
func (p *Permits) release(byUser bool) (a *counterOp[struct{}], ends bool) {
	in := p.p
	a = newCounterOp(in.count, counterSpec[struct{}]{what: counter.Release, verdict: in.count.nothing})
	a.Begin(context.Background(), &a.CounterOp, a.eng.table.At(in.count.route), driver.Bounds{}, false)
	var rd counter.Ready
	a.Shard.Lock()
	ends = byUser && in.seen.claim()
	if err := in.Release(&a.Op, &rd); a.Counter() == nil {
		a.Refuse(in.named(err), &rd)
	}
	a.Shard.UnlockCount(&rd)
	if ends {
		in.seen.reportHoldEnd()
	}
	return a, ends
}

// err says why they are not held any more. The caller holds the lock.
func (p *permits) err() error { return p.named(p.Err()) }

// named is an error of the core as users are told of it.
func (p *permits) named(err error) error {
	if err == ErrClosed {
		return &LostError{Name: p.count.name, Reason: EngineClosed, what: p.count.what()}
	}
	return err
}

// Ended implements counter.PermitsPort.
func (p *permits) Ended() {
	p.done.close()
	p.seen.over(lossOf(p.err()), 0)
}

// Latch is a count that goes down to zero; callers can wait for that. All users of a name on one
// server share one latch, including Redisson's RCountDownLatch. TrySetCount closes it; without a
// count it is open. A Latch is a small value without state of its own, and making one costs no I/O.
// The zero Latch is not usable: its methods return ErrInvalid.
//
// Each CountDown is executed once, or not at all, as the operations of a Semaphore are. A
// latch has no lease: the count of a process that dies before its CountDown stays.
//
// A future of a latch ends with its context; the future of AwaitAsync also ends with Wait. Abandon
// stops only AwaitAsync.
type Latch struct{ counterHandle }

// Latch returns the latch of that name. The rules for names are those of Mutex. In a cluster the
// name must not contain a brace either, because Redisson puts the name in braces for the channel,
// which would then be in another slot.
func (e *Engine) Latch(name string) Latch { return Latch{e.counter(name, counter.Latch)} }

// Name returns the name as you gave it.
func (l Latch) Name() string { return l.name }

// TrySetCount closes an open latch with a count of n, and reports whether it did. It does not
// change a closed latch. As with Redisson, a count of 0 leaves a key: the latch is open then, and
// no TrySetCount closes it before a CountDown has deleted the key.
func (l Latch) TrySetCount(ctx context.Context, n int) (bool, error) {
	return startCounterOp(ctx, l.counterHandle, counterSpec[bool]{what: counter.SetCount, n: n, verdict: l.yes}, true).await(ctx)
}

// CountDown counts down by one. At zero the latch opens, for everybody. It waits for the server's
// answer as long as ctx lives. If that ends before the command was sent, nothing is counted: the
// error has the cause, and Is ErrUnavailable if no server was reachable. After that it Is
// ErrOutcomeUnknown, and the command is repeated in the background until there is an answer, or for
// 50 s.
func (l Latch) CountDown(ctx context.Context) error {
	_, err := l.countDown(ctx, true).await(ctx)
	return err
}

// CountDownAsync is CountDown without the waiting. It never blocks. Abandon takes nothing back, and
// does not stop a command that is still unsent: end ctx for that.
//
// Concurrent operations have no promised order. Await the future of a TrySetCount before you count
// down.
func (l Latch) CountDownAsync(ctx context.Context) *Future[struct{}] {
	return &l.countDown(ctx, false).fut
}

func (l Latch) countDown(ctx context.Context, waits bool) *counterOp[struct{}] {
	return startCounterOp(ctx, l.counterHandle, counterSpec[struct{}]{what: counter.CountDown, free: true, verdict: l.nothing}, waits)
}

// Count returns the count: 0 if the latch is open.
func (l Latch) Count(ctx context.Context) (int, error) { return l.look(ctx) }

// Await waits until the latch is open, as long as ctx lives, or as long as Wait allows; it takes no
// other option. If the latch is still closed then, the error Is ErrPending and has the cause. If
// ctx is already done, Await returns its cause without contacting the server.
//
// Await returns if the latch opens while it listens, even if somebody closes the latch again at
// once. It usually begins to listen one or two round trips after the call. If the message is lost,
// with the connection or while a slot moves, Await waits for the next opening.
func (l Latch) Await(ctx context.Context, opts ...Option) error {
	_, err := l.await(ctx, opts, true).await(ctx)
	return err
}

// AwaitAsync is Await without the waiting. Abandon a future that you no longer want.
func (l Latch) AwaitAsync(ctx context.Context, opts ...Option) *Future[struct{}] {
	return &l.await(ctx, opts, false).fut
}

func (l Latch) await(ctx context.Context, opts []Option, waits bool) *counterOp[struct{}] {
	return startCounterOp(ctx, l.counterHandle, counterSpec[struct{}]{what: counter.Await, options: opts, free: true, verdict: l.nothing}, waits)
}
