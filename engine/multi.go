package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"weak"

	"github.com/pawl-lock/pawl/engine/internal/ctxwatch"
	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/quorum"
)

// MultiLock is several locks that are taken as one: all of them, or none. See Multi.
// The zero MultiLock is not usable: its methods return ErrInvalid.
type MultiLock struct{ all *several }

// several is some locks that are taken as one: those of a MultiLock or of a QuorumLock.
type several struct {
	policy quorum.Policy
	locks  []Mutex
	index  map[severalKey]int // where each of them is
	order  []int              // of a QuorumLock: see RedLock
	err    error              // they cannot be taken as one
	failed Mutex              // because of this one; the first, if there is one, if not because of any
}

// maxLocks bounds the locks of a MultiLock.
const maxLocks = 10_000

// Multi returns the locks as one, which may be of several engines. On the server each is an
// ordinary lock: it excludes callers that take it alone or together with others, including
// Redisson's getMultiLock.
//
// Lock tries all of them at the same time. If one is held by somebody else, it gives the others
// back at once, waits for that one, and then tries the others again. So it never waits while it
// holds one of them, and does not dead-lock with anybody, whatever the order. It is not fair: under
// contention a large set may wait for a long time. With FairMutexes it queues for one lock, and
// takes the others only if their queues are empty; if they never are, it never gets them.
//
// Any Mutex works, including a Reader or a Writer. The whole has no fencing token: Hold.Parts have
// theirs.
//
// There must be at least one lock and at most 10,000, all different and of one kind. Otherwise the
// first call that needs them returns ErrInvalid. Multi cannot know that two names on two engines
// are the same lock; such a Lock never succeeds.
func Multi(locks ...Mutex) MultiLock {
	return MultiLock{newSeveral(quorum.All, locks)}
}

// severalKey is one of the locks.
type severalKey struct {
	engine *Engine
	name   string // as it stands on the server
}

func newSeveral(policy quorum.Policy, locks []Mutex) *several {
	all := &several{policy: policy, locks: slices.Clone(locks), index: make(map[severalKey]int, len(locks))}
	what, most := "MultiLock", maxLocks
	if policy == quorum.Majority {
		what, most = "RedLock", maxServers
	}
	switch {
	case len(locks) == 0:
		all.err = lockerr.Invalid("a %s of no locks", what)
		return all
	case len(locks) > most:
		all.err = lockerr.Invalid("a %s of %d locks: at most %d can be taken as one", what, len(locks), most)
	}
	all.failed = locks[0]
	for i := 0; i < len(locks) && all.err == nil; i++ {
		if all.err = all.add(i, what); all.err != nil && policy == quorum.All {
			all.failed = locks[i]
		}
	}
	return all
}

// add adds a lock to the index, or returns why it cannot be taken with those before it.
func (all *several) add(i int, what string) error {
	first, m := all.locks[0], all.locks[i]
	k := severalKey{m.home, m.key.Name}
	at, before := all.index[k]
	switch {
	case m.home == nil:
		return errZeroMutex
	case m.err != nil:
		return m.err
	case m.key.Kind != first.key.Kind:
		return lockerr.Invalid("a %s of the kinds %s and %s: its locks must be of one kind", what, first.key.Kind, m.key.Kind)
	case !before:
		all.index[k] = i
	case all.policy == quorum.Majority: // of one engine: see sharesServer
	case all.locks[at].name == m.name:
		return lockerr.Invalid("a MultiLock that has %q twice", lockerr.Shorten(m.name))
	default:
		return lockerr.Invalid("a MultiLock of %q and %q, which are one lock by the NameMapper", lockerr.Shorten(all.locks[at].name), lockerr.Shorten(m.name))
	}
	return nil
}

// Many returns the locks of those names as one, each of them a Mutex; see Multi, also for other
// kinds of locks. A repeated name counts once.
func (e *Engine) Many(names ...string) MultiLock {
	sorted := slices.Compact(slices.Sorted(slices.Values(names)))
	locks := make([]Mutex, len(sorted))
	for i, name := range sorted {
		locks[i] = e.Mutex(name)
	}
	return Multi(locks...)
}

// LockMany takes the locks of all those names, or none: Many(names...).Lock.
func (e *Engine) LockMany(ctx context.Context, names []string, opts ...Option) (*Hold, error) {
	return e.Many(names...).Lock(ctx, opts...)
}

// Name returns the name of the first lock as you gave it, and how many more there are.
func (l MultiLock) Name() string {
	return l.all.name()
}

// Lock waits for all the locks as long as ctx lives, or as long as Wait allows. The options
// are those of Mutex.Lock, for each of the locks, but not MinHold: a lock that is given back
// would stay taken. The error is a *NotAcquiredError that names the lock that was not
// acquired, and why; none of them is held then.
//
// A lock that ctx carries is re-entered; see Hold.Context.
func (l MultiLock) Lock(ctx context.Context, opts ...Option) (*Hold, error) {
	return l.all.acquire(ctx, opts, false)
}

// TryLock asks once for all the locks and never waits for one. If somebody else
// holds one of them, the error Is ErrHeld and names it.
func (l MultiLock) TryLock(ctx context.Context, opts ...Option) (*Hold, error) {
	return l.all.acquire(ctx, opts, true)
}

// LockAsync is Lock without the waiting: it never blocks.
func (l MultiLock) LockAsync(ctx context.Context, opts ...Option) *Future[*Hold] {
	return l.all.acquireAsync(ctx, opts, false)
}

// TryLockAsync is TryLock without waiting for the servers' answers.
func (l MultiLock) TryLockAsync(ctx context.Context, opts ...Option) *Future[*Hold] {
	return l.all.acquireAsync(ctx, opts, true)
}

func (all *several) acquire(ctx context.Context, opts []Option, once bool) (h *Hold, err error) {
	var seen *observation
	if e := all.engine(); e.isObserved() {
		ctx, seen = e.observe(ctx, all.acquisition(once), false)
		defer finishSync(seen, &h, &err)
	}
	op, fut, err := all.begin(ctx, opts, once, false, seen)
	if err != nil {
		return nil, err
	}
	return fut.await(ctx, op)
}

func (all *several) acquireAsync(ctx context.Context, opts []Option, once bool) (fut *Future[*Hold]) {
	var seen *observation
	if e := all.engine(); e.isObserved() {
		ctx, seen = e.observe(ctx, all.acquisition(once), true)
		defer finishFuture(seen, &fut)
	}
	_, begun, err := all.begin(ctx, opts, once, true, seen)
	if err != nil {
		seen.finish(err)
		return failedFuture[*Hold](all.engine(), err)
	}
	return begun
}

// engine is that of the first lock, nil if there is none.
func (all *several) engine() *Engine {
	if all == nil || len(all.locks) == 0 {
		return nil
	}
	return all.locks[0].home
}

// acquisition is what an Observer is told of it.
func (all *several) acquisition(once bool) Acquisition {
	return Acquisition{Kind: all.kind(), Name: all.name(), Try: once}
}

// kind is what an Observer calls it.
func (all *several) kind() string {
	if all.policy == quorum.All {
		return kindMulti
	}
	return kindRedLock
}

// begin checks everything that can be known before anything is sent, and then begins to ask.
func (all *several) begin(ctx context.Context, opts []Option, once, async bool, seen *observation) (*driver.Pending, *Future[*Hold], error) {
	if all == nil {
		return nil, nil, notAcquired("", lockerr.Invalid("the zero MultiLock or the zero QuorumLock: get one from Multi, Engine.Many or RedLock"))
	}
	h := &severalHold{eng: all.engine(), all: all, seen: seen}
	if failed, err := h.check(ctx, opts, once); err != nil {
		return nil, nil, failed.failEarly(err)
	}
	return &h.Pending, h.start(ctx, once, async), nil
}

// check is begin without the beginning: it notes the options, and what the context carries. If it fails it names the
// lock because of which.
func (h *severalHold) check(ctx context.Context, opts []Option, once bool) (failed Mutex, err error) {
	all := h.all
	switch {
	case all.err != nil:
		return all.failed, all.err
	case ctx == nil:
		return all.failed, lockerr.ErrNoContext
	case ctx.Err() != nil:
		return all.failed, ctxwatch.CancelOf(ctx).NotAskedErr()
	}
	var last *Engine
	held, parents := heldIn(ctx), make([]*lockHold, len(all.locks))
	for i, m := range all.locks {
		if m.home != last { // its margin may be another
			if m.home.table.Closing() {
				return m, ErrClosed // a majority without it would have to end with it
			}
			if h.opts, err = m.home.resolve(opts, once, m); err != nil {
				return m, err
			}
			last = m.home
		}
		if o := &h.opts; all.policy == quorum.Majority && o.leaseGiven && o.lease <= drift(o.lease) {
			return m, lockerr.Invalid("Lease (%v) must be longer than the drift of the clocks (%v)", o.lease, drift(o.lease))
		}
		parents[i] = held.carried(m.home, m.key)
		if err := m.reenters(parents[i], h.opts); err != nil {
			return m, err
		}
	}
	if h.opts.minGiven {
		return all.failed, lockerr.Invalid("MinHold does not go with several locks: one that is given back would stay taken")
	}
	h.opts.origin = h.eng.originOf(held)
	if slices.ContainsFunc(parents, func(one *lockHold) bool { return one != nil }) {
		h.parents, h.held = parents, weak.Make(held)
	}
	return failed, nil
}

// Do takes all the locks, runs fn and releases them; see Mutex.Do.
func (l MultiLock) Do(ctx context.Context, fn func(ctx context.Context, h *Hold) error, opts ...Option) error {
	h, err := l.Lock(ctx, opts...)
	return lockedRun(ctx, h, err, fn)
}

// TryDo is Do with TryLock: if somebody else holds one of the locks, fn does not run and the
// result is (false, nil); see Mutex.TryDo.
func (l MultiLock) TryDo(ctx context.Context, fn func(ctx context.Context, h *Hold) error, opts ...Option) (ran bool, err error) {
	h, err := l.TryLock(ctx, opts...)
	return triedRun(ctx, h, err, fn)
}

// name is the name of the first lock, and how many more there are; "" if there is none.
func (all *several) name() string {
	switch {
	case all == nil || len(all.locks) == 0:
		return ""
	case all.policy == quorum.Majority || len(all.locks) == 1:
		return all.locks[0].name
	}
	return fmt.Sprintf("%s and %d more", all.locks[0].name, len(all.locks)-1)
}

// describe quotes the first few names, or says on how many servers it is.
func (all *several) describe() string {
	if all.policy == quorum.Majority {
		return fmt.Sprintf("%q on %d servers", lockerr.Shorten(all.locks[0].name), len(all.locks))
	}
	return strings.Join(few(all.locks, 5, func(m Mutex) string { return fmt.Sprintf("%q", lockerr.Shorten(m.name)) }), ", ")
}
