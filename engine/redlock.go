package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/ctxwatch"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// QuorumLock is one lock on several independent servers. It is held by the owner of a
// majority of them. See RedLock. The zero QuorumLock is not usable: its methods return ErrInvalid.
type QuorumLock struct{ all *quorumLock }

type quorumLock struct {
	locks []Mutex
	order []int // in which they are asked after a refusal: that of their addresses, for all processes
	err   error // they cannot be taken as one
}

// maxServers bounds the servers of a QuorumLock.
const maxServers = 100

// RedLock returns locks of independent servers, normally the same name on each, as one lock:
// the owner of a majority of them has it. It is the algorithm that Redis publishes under that name
// (https://redis.io/docs/latest/develop/use/patterns/distributed-locks/).
//
// What it promises: while a majority of the servers works, the lock can be taken, renewed
// and released; the others, whether they are down, hang or are slow, delay nothing. If a
// server dies while the lock is held, nothing is lost that its replica would have had to
// know: the majority knows. On the wire each of the locks is what it is alone.
//
// What it does not promise, and no lock with leases does: that a process which was paused
// after it looked at the hold, or a packet that was delayed, does nothing more. If the
// database that you write to can compare fencing tokens, that is the better protection, and
// one server is enough. RedLock also needs
//
//   - clocks that run at about the same rate. The published algorithm allows for a drift of
//     1% of the lease and 2 ms; so does this one, or for Config.Margin if that is more.
//   - servers that do not forget. One that restarts without its data must stay away for as
//     long as the longest lease, or write every command to its disk first (appendfsync
//     always). Otherwise its vote may be given twice, and two may hold the lock.
//
// Every lock that is a Mutex will do: that of a FairMutex, FencedMutex or SpinMutex, and a Reader
// or a Writer. But the order of FairMutexes is not that of the whole. And there is no fencing token:
// each server counts its own, so they put the holds of the whole in no order.
//
// Give all processes the same address of a server. Contenders take turns in the order of the
// addresses; if theirs differ, nothing is unsafe, but they get in each other's way.
//
// Take an odd number of servers, at least three. An even number works, but survives no more
// losses than one less; of one or two, none may be lost. There may be at most 100, each with
// an Engine of its own; the locks must be of one kind. Otherwise the first call that needs
// them returns ErrInvalid. Two engines with the same address are ErrInvalid, too, unless it is
// that of sentinels, and the masters are different; that two addresses are the same server
// cannot be known.
func RedLock(locks ...Mutex) QuorumLock {
	l := &quorumLock{locks: slices.Clone(locks), err: cannotVote(locks)}
	if l.err == nil {
		l.order = make([]int, len(locks))
		for i := range locks {
			l.order[i] = i
		}
		slices.SortStableFunc(l.order, func(a, b int) int {
			return strings.Compare(locks[a].home.serverName(), locks[b].home.serverName())
		})
	}
	return QuorumLock{l}
}

// cannotVote is why locks cannot be a QuorumLock, nil if they can.
func cannotVote(locks []Mutex) error {
	if len(locks) == 0 {
		return lockerr.Invalid("a RedLock of no locks")
	}
	if len(locks) > maxServers {
		return lockerr.Invalid("a RedLock of %d locks: at most %d can be taken as one", len(locks), maxServers)
	}
	engines, servers := make(map[*Engine]bool), make(map[string]bool)
	for _, m := range locks {
		switch {
		case m.home == nil:
			return errZeroMutex
		case m.err != nil:
			return m.err
		case m.key.Kind != locks[0].key.Kind:
			return lockerr.Invalid("a RedLock of the kinds %s and %s: its locks must be of one kind", locks[0].key.Kind, m.key.Kind)
		case engines[m.home]:
			return lockerr.Invalid("a RedLock that has an Engine twice: each lock must be on a server of its own")
		}
		e := m.home
		engines[e] = true
		if e.cfg.Dialer != nil {
			continue // an address may mean anything
		}
		for _, addr := range e.cfg.Addrs {
			if servers[e.cfg.at(addr)] {
				return lockerr.Invalid("a RedLock that has the server %s twice: each lock must be on a server of its own", lockerr.Shorten(e.cfg.at(addr)))
			}
		}
		for _, addr := range e.cfg.Addrs {
			servers[e.cfg.at(addr)] = true
		}
	}
	return nil
}

// drift is how far the clocks of the servers may run apart during a lease.
func drift(lease time.Duration) time.Duration { return lock.Drift(lease) }

// serverName names the engine's server, for an error.
func (e *Engine) serverName() string {
	cfg := &e.cfg
	return lockerr.Shorten(cfg.at(strings.Join(cfg.Addrs[:min(len(cfg.Addrs), 3)], ",")))
}

// at names what an address leads to: one that sentinels watch, or the server itself.
func (c *Config) at(addr string) string {
	if c.Master == "" {
		return addr
	}
	return c.Master + "@" + addr
}

// Name returns the name of the first lock, as you gave it.
func (l QuorumLock) Name() string {
	if l.all == nil || len(l.all.locks) == 0 {
		return ""
	}
	return l.all.locks[0].name
}

// Lock asks all servers at the same time, and holds the lock when a majority has granted it
// and the time for which they did is not over: the lease, less what has passed since they
// were asked, less the drift. It waits as long as ctx lives, or as long as Wait allows.
//
// When it is refused, it gives back what it has and waits at the first server that refused it, in the
// order of the addresses, for a second at most. When that grants the lock, it asks the servers behind it.
// After two waits in vain it asks all at once again.
//
// The options are those of Mutex.Lock, for each of the servers, but not MinHold: a lock that
// is given back would stay taken. The error is a *NotAcquiredError. It Is ErrHeld if others
// have the lock at so many servers that no majority was left, or the rest was given back for
// them, and ErrUnavailable if servers that did not answer were needed for one; the text has
// the servers. When Lock has failed, what was taken is given back in the background, also at
// servers that do not answer yet.
//
// A lock that ctx carries is re-entered; see Hold.Context.
func (l QuorumLock) Lock(ctx context.Context, opts ...Option) (*Hold, error) {
	return l.acquire(ctx, opts, false)
}

// TryLock is for one answer of each server, as Mutex.TryLock, and never waits for the lock. Servers that do not
// answer are waited for, up to their Config.CommandTimeout, only if it depends on them whether
// there is a majority for this call, or one that others have (ErrHeld); in the latter case
// what was granted is given back before. Of those that try at the same moment, perhaps each
// gets some servers and nobody a majority. Then all are refused. If one of them must get it,
// use Lock with a short Wait.
func (l QuorumLock) TryLock(ctx context.Context, opts ...Option) (*Hold, error) {
	return l.acquire(ctx, opts, true)
}

// LockAsync is Lock without the waiting: it never blocks.
func (l QuorumLock) LockAsync(ctx context.Context, opts ...Option) *Future[*Hold] {
	return l.acquireAsync(ctx, opts, false)
}

// TryLockAsync is TryLock without waiting for the servers' answers.
func (l QuorumLock) TryLockAsync(ctx context.Context, opts ...Option) *Future[*Hold] {
	return l.acquireAsync(ctx, opts, true)
}

func (l QuorumLock) acquire(ctx context.Context, opts []Option, once bool) (*Hold, error) {
	if !l.engine().isObserved() {
		return l.await(ctx, opts, once, nil)
	}
	return l.acquireObserved(ctx, opts, once)
}

func (l QuorumLock) acquireObserved(ctx context.Context, opts []Option, once bool) (h *Hold, err error) {
	ctx, seen := l.engine().observe(ctx, Acquisition{Kind: kindRedLock, Name: l.Name(), Try: once}, false)
	defer finishSync(seen, &h, &err, dropHold)
	return l.await(ctx, opts, once, seen)
}

func (l QuorumLock) await(ctx context.Context, opts []Option, once bool, seen *observation) (*Hold, error) {
	var done <-chan struct{}
	if ctx != nil {
		done = ctx.Done() // before anything is asked for: it may be the user's, and panic
	}
	q, fut, err := l.begin(ctx, opts, once, false, seen)
	if err != nil {
		return nil, err
	}
	q.await(ctx, done, fut.Done(), fut.Abandon)
	return fut.Result()
}

func (l QuorumLock) acquireAsync(ctx context.Context, opts []Option, once bool) *Future[*Hold] {
	var seen *observation
	if e := l.engine(); e.isObserved() {
		ctx, seen = e.observe(ctx, Acquisition{Kind: kindRedLock, Name: l.Name(), Try: once}, true)
	}
	_, fut, err := l.begin(ctx, opts, once, true, seen)
	if err != nil {
		seen.finish(err)
		return failedFuture[*Hold](l.engine(), err)
	}
	return fut
}

// engine is that of the first lock, nil if there is none.
func (l QuorumLock) engine() *Engine {
	if l.all == nil || len(l.all.locks) == 0 {
		return nil
	}
	return l.all.locks[0].home
}

// begin checks everything that can be known before anything is sent.
func (l QuorumLock) begin(ctx context.Context, opts []Option, once, async bool, seen *observation) (*redLockAcquisition, *Future[*Hold], error) {
	o, held, parents, failed, err := l.check(ctx, opts, once)
	if err != nil {
		return nil, nil, failed.failEarly(err)
	}
	q, fut := startRedLockAcquisition(ctx, l.all, o, held, parents, once, async, seen)
	return q, fut, nil
}

// check is begin without the beginning. If it fails it names the lock because of which.
func (l QuorumLock) check(ctx context.Context, opts []Option, once bool) (o options, held *heldContext, parents []*lockHold, failed Mutex, err error) {
	if l.all == nil {
		return o, nil, nil, failed, lockerr.Invalid("the zero QuorumLock: get one from RedLock")
	}
	locks := l.all.locks
	if len(locks) > 0 {
		failed = locks[0]
	}
	switch {
	case l.all.err != nil:
		return o, nil, nil, failed, l.all.err
	case ctx == nil:
		return o, nil, nil, failed, lockerr.ErrNoContext
	case ctx.Err() != nil:
		return o, nil, nil, failed, ctxwatch.CancelOf(ctx).NotAskedErr()
	}
	held, parents = heldIn(ctx), make([]*lockHold, len(locks))
	for i, m := range locks {
		e := m.home
		if o, err = e.resolve(opts, once, m.key.Kind); err != nil {
			return o, nil, nil, m, err
		}
		if o.leaseGiven && o.lease <= drift(o.lease) {
			return o, nil, nil, m, lockerr.Invalid("Lease (%v) must be longer than the drift of the clocks (%v)", o.lease, drift(o.lease))
		}
		parents[i] = held.carried(e, m.key)
		if err := m.reenters(parents[i], o); err != nil {
			return o, nil, nil, m, err
		}
	}
	if o.minGiven {
		return o, nil, nil, failed, lockerr.Invalid("MinHold does not go with a RedLock: a lock that is given back would stay taken")
	}
	return o, held, parents, failed, nil
}

// Do takes the lock, runs fn and releases the lock; see Mutex.Do.
func (l QuorumLock) Do(ctx context.Context, fn func(ctx context.Context, h *Hold) error, opts ...Option) error {
	h, err := l.Lock(ctx, opts...)
	return lockedRun(ctx, h, err, fn)
}

// TryDo is Do with TryLock: if others hold so many of the servers that no majority is left,
// fn does not run and the result is (false, nil); see Mutex.TryDo.
func (l QuorumLock) TryDo(ctx context.Context, fn func(ctx context.Context, h *Hold) error, opts ...Option) (ran bool, err error) {
	h, err := l.TryLock(ctx, opts...)
	return triedRun(ctx, h, err, fn)
}

func quorumText(locks []Mutex) string {
	return fmt.Sprintf("%q on %d servers", lockerr.Shorten(locks[0].name), len(locks))
}
