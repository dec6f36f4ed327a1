package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/quorum"
)

// QuorumLock is one lock on several independent servers. It is held by the owner of a
// majority of them. See RedLock. The zero QuorumLock is not usable: its methods return ErrInvalid.
type QuorumLock struct{ all *several }

// maxServers bounds the servers of a QuorumLock.
const maxServers = 100

// RedLock returns locks of independent servers, normally the same name on each, as one lock:
// the owner of a majority of them has it. It is the algorithm that Redis publishes under that name
// (https://redis.io/docs/latest/develop/use/patterns/distributed-locks/).
//
// What it promises: while a majority of the servers works, the lock can be taken, renewed and
// released; the others, whether they are down, hang or are slow, delay nothing. If a server dies
// while the lock is held, the hold stays: the majority has it. On each server it is an ordinary
// lock.
//
// What it does not promise, and no lock with leases does: that a process that was paused after it
// checked the hold, or a delayed packet, does nothing more. If the database that you write to can
// compare fencing tokens, that is the better protection, and one server is enough. RedLock also
// needs
//
//   - clocks that run at about the same rate. The published algorithm allows for a drift of
//     1% of the lease and 2 ms; so does this one, or for Config.Margin if that is more.
//   - servers that do not forget. A server that restarts without its data must stay away for as
//     long as the longest lease, or write every command to its disk first (appendfsync always).
//     Otherwise its vote may be given twice, and two may hold the lock.
//
// Any Mutex works: a FairMutex, a FencedMutex, a SpinMutex, a Reader or a Writer. But with
// FairMutexes the whole is not fair. And there is no fencing token: the servers count their tokens
// separately, so these say nothing about the order of its holds.
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
	l := newSeveral(quorum.Majority, locks)
	// They are asked in this order after a refusal: that of their addresses, for all processes.
	l.order = make([]int, len(locks))
	for i := range locks {
		l.order[i] = i
	}
	if l.err == nil {
		l.err = sharesServer(locks)
	}
	if l.err == nil {
		slices.SortStableFunc(l.order, func(a, b int) int {
			return strings.Compare(locks[a].home.serverName(), locks[b].home.serverName())
		})
	}
	return QuorumLock{l}
}

// sharesServer is an error if two of the locks are on the same server, as far as that is known.
func sharesServer(locks []Mutex) error {
	engines, servers := make(map[*Engine]bool), make(map[string]bool)
	for _, m := range locks {
		e := m.home
		if engines[e] {
			return lockerr.Invalid("a RedLock that has an Engine twice: each lock must be on a server of its own")
		}
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
	return l.all.name()
}

// Lock asks all servers at the same time, and holds the lock when a majority has granted it
// and the time for which they did is not over: the lease, less what has passed since they
// were asked, less the drift. It waits as long as ctx lives, or as long as Wait allows.
//
// When it is refused, it gives back what it has and waits at the first server that refused it, in the
// order of the addresses, for a second at most. When that grants the lock, it asks the servers behind it.
// After two waits in vain it asks all at once again.
//
// The options are those of Mutex.Lock, for each of the servers, but not MinHold: a lock that is
// given back would stay taken. The error is a *NotAcquiredError. It Is ErrHeld if others have the
// lock at too many servers for a majority, or the rest was given back for them, and ErrUnavailable
// if a majority needed servers that did not answer; the text names the servers. When Lock has
// failed, what was taken is given back in the background, also at servers that do not answer yet.
//
// A lock that ctx carries is re-entered; see Hold.Context.
func (l QuorumLock) Lock(ctx context.Context, opts ...Option) (*Hold, error) {
	return l.all.acquire(ctx, opts, false)
}

// TryLock waits for one answer of each server, as Mutex.TryLock does, and never for the lock. It waits for
// silent servers, up to their Config.CommandTimeout, only if they decide whether this call has a majority, or
// others have one (ErrHeld); in the latter case it first gives back what was granted. If several callers try at
// the same moment, each may get some servers and none a majority. Then all are refused. If one of them must get
// the lock, use Lock with a short Wait.
func (l QuorumLock) TryLock(ctx context.Context, opts ...Option) (*Hold, error) {
	return l.all.acquire(ctx, opts, true)
}

// LockAsync is Lock without the waiting: it never blocks.
func (l QuorumLock) LockAsync(ctx context.Context, opts ...Option) *Future[*Hold] {
	return l.all.acquireAsync(ctx, opts, false)
}

// TryLockAsync is TryLock without waiting for the servers' answers.
func (l QuorumLock) TryLockAsync(ctx context.Context, opts ...Option) *Future[*Hold] {
	return l.all.acquireAsync(ctx, opts, true)
}

// Do takes the lock, runs fn and releases the lock; see Mutex.Do.
func (l QuorumLock) Do(ctx context.Context, fn func(ctx context.Context, h *Hold) error, opts ...Option) error {
	h, err := l.Lock(ctx, opts...)
	return lockedRun(ctx, h, err, fn)
}

// TryDo is Do with TryLock: if others hold too many of the servers for a majority, fn does not run
// and the result is (false, nil); see Mutex.TryDo.
func (l QuorumLock) TryDo(ctx context.Context, fn func(ctx context.Context, h *Hold) error, opts ...Option) (ran bool, err error) {
	h, err := l.TryLock(ctx, opts...)
	return triedRun(ctx, h, err, fn)
}

// NotAcquired implements quorum.Port: the error of an acquisition that has failed.
func (h *severalHold) NotAcquired(f quorum.Failure) error {
	name := h.all.locks[0].name
	if h.Policy == quorum.All {
		name = h.all.locks[f.One.Member].name
	}
	switch f.Is {
	case ErrClosed:
		return notAcquired(name, ErrClosed)
	case nil:
		one := f.One.Why
		if f.Stop != nil {
			one = f.Stop.Err(lockerr.Parts(one)...)
		}
		return notAcquired(name, one)
	}
	why := &noMajority{is: f.Is, of: len(h.all.locks), granted: f.Granted}
	for _, one := range f.Each {
		text := one.Why
		is := lockerr.Parts(text)
		switch state, at := quorum.StateIn(is); state {
		case quorum.Held:
			text = is[at]
		case quorum.Unavailable:
			text = lockerr.Wrap(is[at:]...)
		}
		why.each = append(why.each, &serverError{h.all.locks[one.Member].home.serverName(), text})
	}
	err := notAcquired(name, why)
	if f.Stop != nil && f.Stop.Cause != nil {
		err = notAcquired(name, lockerr.Wrap(f.Stop.Cause, why))
	}
	err.TTL = f.TTL
	return err
}

// noMajority is why a QuorumLock was not acquired.
type noMajority struct {
	is      error // ErrHeld, ErrUnavailable, what a server said for good, or errEarly
	of      int
	granted int
	each    []error // of servers that did not grant it
}

func (e *noMajority) Unwrap() error { return e.is }

func (e *noMajority) Error() string {
	return fmt.Sprintf("engine: granted by %d of %d servers, %d are needed: %s", e.granted, e.of, e.of/2+1, listed(e.each))
}

// serverError is an error with the server that it is about.
type serverError struct {
	server string
	err    error
}

func (e *serverError) Error() string { return "engine: " + e.server + ": " + partText(e.err) }
func (e *serverError) Unwrap() error { return e.err }

// listed is the text of errors of several servers: the first few.
func listed(each []error) string { return strings.Join(few(each, 7, partText), "; ") }

// Lost implements quorum.Port: the end of a hold that has too few votes.
func (h *severalHold) Lost(l quorum.Loss) error {
	why := &tooFew{left: l.Left, of: len(h.all.locks)}
	for _, one := range l.Each {
		why.each = append(why.each, &serverError{h.all.locks[one.Member].home.serverName(), cmp.Or(one.Why, error(lossAt(l.Last)))})
	}
	return &LostError{Name: h.all.locks[0].name, Reason: LostReason(l.Last), Err: why}
}

// tooFew is why a QuorumLock was lost. It has no Unwrap: what is true of one server is not true
// of the whole.
type tooFew struct {
	left, of int
	each     []error // of the servers that are not left
}

func (e *tooFew) Error() string {
	return fmt.Sprintf("engine: %d of %d servers are certain to have it, %d are needed: %s", e.left, e.of, e.of/2+1, listed(e.each))
}

// lossAt is the loss at one server, which is not ErrLost: the whole need not be lost.
type lossAt LostReason

func (e lossAt) Error() string { return LostReason(e).String() }

// unreleased is the error of an Unlock, of those of the servers.
func (h *severalHold) unreleased(votes []*quorum.Vote, errs []error) error {
	if h.Policy == quorum.All {
		return joined(errs)
	}
	before, gone := 0, 0
	var last *LostError
	var each, losses []error
	for i, err := range errs {
		server := h.all.locks[votes[i].Member].home.serverName()
		switch lost, isLost := err.(*LostError); {
		case err == nil:
			continue
		case isLost:
			gone, last = gone+1, lost
			err = lossAt(lost.Reason)
			losses = append(losses, &serverError{server, err})
		case isNotHeld(err):
			before++
		}
		each = append(each, &serverError{server, err})
	}
	switch {
	case before >= h.Need():
		return withName(h.all.locks[0].name, ErrNotHeld)
	case len(votes)-gone < h.Need():
		return &LostError{Name: h.all.locks[0].name, Reason: last.Reason, Err: &tooFew{len(votes) - gone, len(h.all.locks), losses}}
	}
	return joined(each)
}
