package engine

import (
	"context"
	"encoding/hex"
	"math"

	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// PermitSemaphore is a number of permits that all users of its name on one server share, including
// Redisson's RPermitExpirableSemaphore. Each permit that is taken has an id and a lease: the
// watchdog renews it, or it is a fixed one (Lease). If a process dies, its permits come back when
// their leases end. There are no permits until TrySetPermits or SetPermits sets their number.
//
// Waiters of one process are served in order: a waiter for many permits is not overtaken by waiters
// for few. Their tries go one after another, so a process gets one grant of a name per round trip.
// Processes compete. When a permit comes back, one waiter of each process tries.
//
// The clock of the server counts. Redisson's clients use their own: a client whose clock is ahead
// frees the permits of others too soon, by that time. A permit that never expires, as in Redisson,
// cannot be taken: nobody would get it back from a dead process.
//
// There is no re-entry: the context of a hold of permits ends with the hold and carries nothing,
// and each Acquire takes permits of its own. MinHold and NonReentrant are ErrInvalid. In a cluster,
// no permit is taken or given back while the two keys of a semaphore are on different nodes because
// its slot moves; held permits are still renewed.
//
// A PermitSemaphore is a small value without state of its own, and making one costs no I/O. The
// zero PermitSemaphore is not usable: its methods return ErrInvalid.
type PermitSemaphore struct{ m Mutex }

// PermitSemaphore returns the semaphore of that name. The rules for names are those of Mutex. A
// name is used for a PermitSemaphore or for something else: the other is ErrKindConflict, or ErrWrongType.
func (e *Engine) PermitSemaphore(name string) PermitSemaphore {
	return PermitSemaphore{e.mutex(name, kind.Permit)}
}

// Name returns the name as you gave it.
func (s PermitSemaphore) Name() string { return s.m.name }

// Acquire waits for n permits as long as ctx lives, or as long as Wait allows. They are one hold:
// granted together, renewed together, given back together; if one of them is taken away, the hold
// is lost, and the others are given back. Hold.PermitIDs has their ids. n is between 1 and 256. If
// Acquire fails, the error is a *NotAcquiredError; permits that the server may have granted
// anyway are given back.
func (s PermitSemaphore) Acquire(ctx context.Context, n int, opts ...Option) (*Hold, error) {
	return s.of(n).acquire(ctx, opts, false)
}

// TryAcquire waits for one answer, as TryLock does, and never for permits. If there are too few, the
// error is a *NotAcquiredError that Is ErrHeld; if nobody has set their number, ErrNoPermits.
func (s PermitSemaphore) TryAcquire(ctx context.Context, n int, opts ...Option) (*Hold, error) {
	return s.of(n).acquire(ctx, opts, true)
}

// AcquireAsync is Acquire without the waiting. Abandon a future that you no longer want.
func (s PermitSemaphore) AcquireAsync(ctx context.Context, n int, opts ...Option) *Future[*Hold] {
	return s.of(n).acquireAsync(ctx, opts, false)
}

// TryAcquireAsync is TryAcquire without waiting for the server's answer.
func (s PermitSemaphore) TryAcquireAsync(ctx context.Context, n int, opts ...Option) *Future[*Hold] {
	return s.of(n).acquireAsync(ctx, opts, true)
}

// Permits returns n permits of the semaphore as a Lock: Lock and LockAsync are Acquire, TryLock and
// TryLockAsync TryAcquire, and Do runs a function while they are held.
func (s PermitSemaphore) Permits(n int) Lock { return permitLock{s.of(n)} }

// permitLock is a number of permits of a semaphore as a Lock, and nothing else that a Mutex is.
type permitLock struct{ lockMethods }

type lockMethods = Lock // the name of a field that is none of its methods

// of is what acquires n permits.
func (s PermitSemaphore) of(n int) Mutex {
	m := s.m
	m.permits = n
	return m
}

// TrySetPermits gives a semaphore that does not exist n permits, and reports whether it did. It
// does not change one that exists. The command is sent once: if its answer is lost, or does not
// come within Config.CommandTimeout, the error is ErrOutcomeUnknown.
func (s PermitSemaphore) TrySetPermits(ctx context.Context, n int) (bool, error) {
	return s.set(ctx, writesOnce, script.TryPermits, n, 0)
}

// SetPermits sets the total number of permits, including those held. If more are held, none is free
// until enough have come back. The command is repeated until there is an answer, or
// Config.CommandTimeout or ctx is over: then the error is ErrOutcomeUnknown if it was sent.
func (s PermitSemaphore) SetPermits(ctx context.Context, n int) error {
	_, err := s.set(ctx, idempotent, script.SetPermits, n, 0)
	return err
}

// AddPermits gives the semaphore delta more permits, or takes some away if delta is negative. It
// cannot be repeated safely, so it is sent once, as TrySetPermits is.
func (s PermitSemaphore) AddPermits(ctx context.Context, delta int) error {
	_, err := s.set(ctx, writesOnce, script.AddPermits, delta, math.MinInt32)
	return err
}

// Available returns the number of free permits; it is negative if more are held than exist.
func (s PermitSemaphore) Available(ctx context.Context) (int, error) {
	return s.count(ctx, available)
}

// Acquired returns how many permits are held, by anybody.
func (s PermitSemaphore) Acquired(ctx context.Context) (int, error) {
	return s.count(ctx, acquired)
}

// Capacity returns the total number of permits, held and free: Redisson's getPermits.
func (s PermitSemaphore) Capacity(ctx context.Context) (int, error) {
	return s.count(ctx, capacity)
}

// ForceRelease gives a permit back by its id, whether it is held here or elsewhere, and reports
// whether it was held. Repeated calls give it back once. Its holder learns of it at its next
// renewal, and loses all permits that it took together with this one. A holder with a fixed lease
// learns of it when it unlocks or extends. If the answer is lost, the error is ErrOutcomeUnknown;
// then call it again.
func (s PermitSemaphore) ForceRelease(ctx context.Context, id string) (bool, error) {
	var raw script.PermitID
	wrong := s.fits()
	if n, err := hex.Decode(raw[:], []byte(id[:min(len(id), 2*len(raw))])); err != nil || n != len(raw) || len(id) != 2*len(raw) {
		wrong = lockerr.Invalid("%q is not the id of a permit: 32 hexadecimal digits", lockerr.Shorten(id))
	}
	return startQuery(ctx, s.m, querySpec[bool]{
		effect: writesOnce, invalid: wrong, result: s.m.changed,
		encode: func(dst []byte, form resp.ScriptForm) []byte {
			return script.AppendPermitFree(dst, form, s.m.key.Name, []script.PermitID{raw}, s.channel())
		},
	}, true).answer(ctx)
}

// wrong is why n cannot be asked for, nil if it can.
func (s PermitSemaphore) wrong(n, least int) error {
	switch {
	case n > math.MaxInt32 || n < math.MinInt32:
		return lockerr.Invalid("a number of permits (%d) must fit into 32 bits: Redisson has no more", n)
	case n < least:
		return lockerr.Invalid("a number of permits (%d) must not be negative", n)
	}
	return s.fits()
}

// set changes the number of permits, and reports whether it did. n is no less than least.
func (s PermitSemaphore) set(ctx context.Context, effect queryEffect, what string, n, least int) (bool, error) {
	return startQuery(ctx, s.m, querySpec[bool]{
		effect: effect, invalid: s.wrong(n, least), result: s.m.changed,
		encode: func(dst []byte, form resp.ScriptForm) []byte {
			return script.AppendPermitSet(dst, form, s.m.key.Name, what, int64(n), s.channel())
		},
	}, true).answer(ctx)
}

// What a count is asked for.
func available(free, _ int) int   { return free }
func acquired(_, held int) int    { return held }
func capacity(free, held int) int { return free + held }

func (s PermitSemaphore) count(ctx context.Context, of func(free, held int) int) (int, error) {
	return startQuery(ctx, s.m, querySpec[int]{
		effect: readOnly, invalid: s.fits(),
		encode: func(dst []byte, form resp.ScriptForm) []byte {
			return script.AppendPermitCount(dst, form, s.m.key.Name, s.channel())
		},
		result: func(v resp.Value, why error) (int, error) {
			if why == nil && (v.Kind != wire.KindArray || v.Len() != 2) {
				why = lockerr.Wrap(ErrWrongType, driver.ErrReply)
			}
			if why != nil {
				return 0, s.m.about(why)
			}
			var n [2]int
			for i, e := range v.Each {
				n[i] = int(e.Int)
			}
			return of(n[0], n[1]), nil
		},
	}, true).answer(ctx)
}

func (s PermitSemaphore) channel() script.Channel { return s.m.home.table.Channel(s.m.key) }

// fits is ErrKindConflict if the name is in use as something else. The server would take a Semaphore for a
// PermitSemaphore: both are a number.
func (s PermitSemaphore) fits() error {
	if s.m.home == nil || s.m.err != nil { // which is said anyway
		return nil
	}
	sh := s.m.home.table.Shard(s.m.route)
	sh.Lock()
	defer sh.Unlock()
	if !sh.Fits(s.m.key) {
		return errKindConflict(sh, s.m.key.Name)
	}
	return nil
}
