package engine

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/drive"
	"github.com/pawl-lock/pawl/engine/internal/executor"
	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/redact"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// PermitSemaphore is a number of permits that everybody who uses its name on the same server
// shares, Redisson's RPermitExpirableSemaphore included. Each permit that is taken has an id and a
// lease: the watchdog renews it, or it is a fixed one (Lease). If a process dies, its permits come
// back when their leases end. There are none to be had before TrySetPermits or SetPermits has said
// how many.
//
// Those who wait in this process are served in order: one who wants many is not overtaken by
// those who want few. Their tries go one after another, so a process takes one grant per round
// trip of a name. Processes compete. When a permit comes back, one waiter of each process tries.
//
// What counts is the clock of the server. Redisson's clients use their own: if the clock of one is
// ahead, it frees the permits of others too soon, by as much. A permit that never expires,
// as Redisson may have them, cannot be taken: nobody would get it back from a dead process.
//
// It is not re-entered: a context of a PermitHold ends with it and carries nothing, and each
// Acquire takes permits of its own. MinHold and NonReentrant are ErrInvalid. In a cluster, no
// permit is taken or given back at the moment when the two keys of a semaphore are on different
// nodes, as its slot moves; they are renewed anyway.
//
// The futures of operations that acquire nothing (SetPermitsAsync, ForceReleaseAsync and so on) end
// with their context and Config.CommandTimeout, as the calls without Async do. Abandon does not stop
// them, and takes nothing back. No order is promised among operations that are under way at the same
// time: await the first before you begin what must come after it.
//
// A PermitSemaphore is a small value without state of its own, and making one costs no I/O. The
// zero PermitSemaphore is not usable: its methods return ErrInvalid.
type PermitSemaphore struct{ m Mutex }

// MaxPermits is how many permits one Acquire of a PermitSemaphore can take.
const MaxPermits = script.MaxPermits

// PermitSemaphore returns the semaphore of that name. The rules for names are those of Mutex. A
// name is used for a PermitSemaphore or for something else: the other is ErrKind, or ErrWrongType.
func (e *Engine) PermitSemaphore(name string) PermitSemaphore {
	return PermitSemaphore{e.mutex(name, kind.Permit)}
}

// Name returns the name as you gave it.
func (s PermitSemaphore) Name() string { return s.m.name }

// Acquire waits for n permits as long as ctx lives, or as long as Wait allows. They are one hold:
// granted together, renewed together, given back together. n is between 1 and MaxPermits. If
// Acquire fails, the error is a *NotAcquiredError; permits that the server may have granted
// anyway are given back.
func (s PermitSemaphore) Acquire(ctx context.Context, n int, opts ...Option) (*PermitHold, error) {
	return permitted(s.m.acquire(ctx, ofSize(n, opts), false))
}

// TryAcquire is for one answer, as TryLock, and never waits for permits. If there are too few, the error
// is a *NotAcquiredError that Is ErrHeld; if nobody has said how many there are, ErrNoPermits.
func (s PermitSemaphore) TryAcquire(ctx context.Context, n int, opts ...Option) (*PermitHold, error) {
	return permitted(s.m.acquire(ctx, ofSize(n, opts), true))
}

// AcquireAsync is Acquire without the waiting. Abandon a future that you no longer want.
func (s PermitSemaphore) AcquireAsync(ctx context.Context, n int, opts ...Option) *Future[*PermitHold] {
	return permitAsync(s.m.acquireAsync(ctx, ofSize(n, opts), false))
}

// TryAcquireAsync is TryAcquire without waiting for the server's answer.
func (s PermitSemaphore) TryAcquireAsync(ctx context.Context, n int, opts ...Option) *Future[*PermitHold] {
	return permitAsync(s.m.acquireAsync(ctx, ofSize(n, opts), true))
}

// Do acquires n permits, runs fn and gives them back, as Mutex.Do does with a lock.
func (s PermitSemaphore) Do(ctx context.Context, n int, fn func(ctx context.Context, h *PermitHold) error, opts ...Option) error {
	return lockAndRun(ctx, permitTaker{s, n}, fn, opts)
}

// TryDo is Do with TryAcquire: if there are too few permits, fn does not run and the result is
// (false, nil).
func (s PermitSemaphore) TryDo(ctx context.Context, n int, fn func(ctx context.Context, h *PermitHold) error, opts ...Option) (ran bool, err error) {
	return tryAndRun(ctx, permitTaker{s, n}, fn, opts)
}

// TrySetPermits gives a semaphore that does not exist n permits, and reports whether it did. It
// leaves one that exists as it is. It is sent once: if its answer is lost, or does not come within
// Config.CommandTimeout, the error is ErrOutcomeUnknown.
func (s PermitSemaphore) TrySetPermits(ctx context.Context, n int) (bool, error) {
	return s.trySetPermits(ctx, n, true).answer(ctx)
}

// TrySetPermitsAsync is TrySetPermits without the waiting. It never blocks.
func (s PermitSemaphore) TrySetPermitsAsync(ctx context.Context, n int) *Future[bool] {
	return &s.trySetPermits(ctx, n, false).fut
}

func (s PermitSemaphore) trySetPermits(ctx context.Context, n int, waits bool) *question[bool] {
	return pose(ctx, s.m, inquiry[bool]{
		how: writes, invalid: s.wrong(n, 0), encode: s.setting(script.TryPermits, n), verdict: s.m.changed,
	}, waits)
}

// SetPermits has the semaphore have n permits in all, those that are held included. If more are
// held, none is to be had until enough have come back. It is repeated until there is an answer, or
// Config.CommandTimeout or ctx is over: then the error is ErrOutcomeUnknown if it was sent.
func (s PermitSemaphore) SetPermits(ctx context.Context, n int) error {
	_, err := s.setPermits(ctx, n, true).answer(ctx)
	return err
}

// SetPermitsAsync is SetPermits without the waiting. It never blocks.
func (s PermitSemaphore) SetPermitsAsync(ctx context.Context, n int) *Future[struct{}] {
	return &s.setPermits(ctx, n, false).fut
}

func (s PermitSemaphore) setPermits(ctx context.Context, n int, waits bool) *question[struct{}] {
	return pose(ctx, s.m, inquiry[struct{}]{
		how: rewrites, invalid: s.wrong(n, 0), encode: s.setting(script.SetPermits, n), verdict: s.nothing,
	}, waits)
}

// AddPermits gives the semaphore delta more permits, or takes some away if delta is negative. It
// cannot be repeated safely, so it is sent once, as TrySetPermits is.
func (s PermitSemaphore) AddPermits(ctx context.Context, delta int) error {
	_, err := s.addPermits(ctx, delta, true).answer(ctx)
	return err
}

// AddPermitsAsync is AddPermits without the waiting. It never blocks.
func (s PermitSemaphore) AddPermitsAsync(ctx context.Context, delta int) *Future[struct{}] {
	return &s.addPermits(ctx, delta, false).fut
}

func (s PermitSemaphore) addPermits(ctx context.Context, delta int, waits bool) *question[struct{}] {
	return pose(ctx, s.m, inquiry[struct{}]{
		how: writes, invalid: s.wrong(delta, math.MinInt32), encode: s.setting(script.AddPermits, delta), verdict: s.nothing,
	}, waits)
}

// Available returns how many permits are to be had: fewer than none if there are fewer than
// are held.
func (s PermitSemaphore) Available(ctx context.Context) (int, error) {
	return s.count(ctx, available, true).answer(ctx)
}

// AvailableAsync is Available without the waiting. It never blocks.
func (s PermitSemaphore) AvailableAsync(ctx context.Context) *Future[int] {
	return &s.count(ctx, available, false).fut
}

// Acquired returns how many permits are held, by anybody.
func (s PermitSemaphore) Acquired(ctx context.Context) (int, error) {
	return s.count(ctx, acquired, true).answer(ctx)
}

// AcquiredAsync is Acquired without the waiting. It never blocks.
func (s PermitSemaphore) AcquiredAsync(ctx context.Context) *Future[int] {
	return &s.count(ctx, acquired, false).fut
}

// Capacity returns how many permits there are in all, held or to be had: Redisson's getPermits.
func (s PermitSemaphore) Capacity(ctx context.Context) (int, error) {
	return s.count(ctx, capacity, true).answer(ctx)
}

// CapacityAsync is Capacity without the waiting. It never blocks.
func (s PermitSemaphore) CapacityAsync(ctx context.Context) *Future[int] {
	return &s.count(ctx, capacity, false).fut
}

// ForceRelease gives a permit back by its id, whether it is held here or elsewhere, and reports
// whether it was held. It comes back once, however often it is given back. Its holder is told at
// its next renewal, and loses all permits that it took together with this one. One with a fixed
// lease is told when it unlocks or extends. If the answer is lost, the error is ErrOutcomeUnknown;
// then call it again.
func (s PermitSemaphore) ForceRelease(ctx context.Context, id string) (bool, error) {
	return s.forceRelease(ctx, id, true).answer(ctx)
}

// ForceReleaseAsync is ForceRelease without the waiting. It never blocks.
func (s PermitSemaphore) ForceReleaseAsync(ctx context.Context, id string) *Future[bool] {
	return &s.forceRelease(ctx, id, false).fut
}

func (s PermitSemaphore) forceRelease(ctx context.Context, id string, waits bool) *question[bool] {
	var raw script.PermitID
	wrong := s.fits()
	if n, err := hex.Decode(raw[:], []byte(id[:min(len(id), 2*len(raw))])); err != nil || n != len(raw) || len(id) != 2*len(raw) {
		wrong = reason.Invalid("%q is not the id of a permit: 32 hexadecimal digits", reason.Shorten(id))
	}
	return pose(ctx, s.m, inquiry[bool]{
		how: writes, invalid: wrong, verdict: s.m.changed,
		encode: func(dst []byte, form resp.Form) []byte {
			return script.AppendPermitFree(dst, form, s.m.key.Name, []script.PermitID{raw}, s.channel())
		},
	}, waits)
}

// wrong is why n cannot be asked for, nil if it can.
func (s PermitSemaphore) wrong(n, least int) error {
	switch {
	case n > math.MaxInt32 || n < math.MinInt32:
		return reason.Invalid("a number of permits (%d) must fit into 32 bits: Redisson has no more", n)
	case n < least:
		return reason.Invalid("a number of permits (%d) must not be negative", n)
	}
	return s.fits()
}

// setting encodes what sets the number of permits.
func (s PermitSemaphore) setting(what string, n int) func([]byte, resp.Form) []byte {
	return func(dst []byte, form resp.Form) []byte {
		return script.AppendPermitSet(dst, form, s.m.key.Name, what, int64(n), s.channel())
	}
}

// nothing is the verdict that has no more to say than whether there is an answer.
func (s PermitSemaphore) nothing(v resp.Value, why error) (struct{}, error) {
	_, err := s.m.changed(v, why)
	return struct{}{}, err
}

// What a count is asked for.
func available(free, _ int) int   { return free }
func acquired(_, held int) int    { return held }
func capacity(free, held int) int { return free + held }

func (s PermitSemaphore) count(ctx context.Context, of func(free, held int) int, waits bool) *question[int] {
	return pose(ctx, s.m, inquiry[int]{
		how: reads, invalid: s.fits(),
		encode: func(dst []byte, form resp.Form) []byte {
			return script.AppendPermitCount(dst, form, s.m.key.Name, s.channel())
		},
		verdict: func(v resp.Value, why error) (int, error) {
			if why == nil && (v.Kind != wire.KindArray || v.Len() != 2) {
				why = reason.Because(ErrWrongType, drive.ErrReply)
			}
			if why != nil {
				return 0, s.m.about(why)
			}
			var n [2]int
			v.Each(func(i int, e resp.Value) bool { n[i] = int(e.Int); return true })
			return of(n[0], n[1]), nil
		},
	}, waits)
}

func (s PermitSemaphore) channel() script.Channel { return s.m.engine().table.Channel(s.m.key) }

// fits is ErrKind if the name is in use as something else. The server would take a Semaphore for a
// PermitSemaphore: both are a number.
func (s PermitSemaphore) fits() error {
	if s.m.home == nil || s.m.err != nil { // which is said anyway
		return nil
	}
	sh := s.m.engine().table.Shard(s.m.route)
	sh.Lock()
	defer sh.Unlock()
	if !sh.Fits(s.m.key) {
		return errKindOf(sh, s.m.key.Name)
	}
	return nil
}

// String returns the name: PermitSemaphore("orders").
func (s PermitSemaphore) String() string {
	return fmt.Sprintf("PermitSemaphore(%q)", reason.Shorten(s.m.name))
}

// Format implements fmt.Formatter: String, whatever the verb.
func (s PermitSemaphore) Format(f fmt.State, verb rune) { redact.Format(f, verb, s.String()) }

// MarshalText implements encoding.TextMarshaler, for slog and JSON: String.
func (s PermitSemaphore) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// PermitHold is a Hold of permits that were taken together. Unlock gives them back, each of them
// once, whatever becomes of connections. Extend is like Redisson's updateLeaseTime, but for this
// hold only: that takes the id of anybody's permit. If one of them is taken away, the hold is lost, and the others
// are given back.
type PermitHold struct {
	_ noCopy
	*Hold
}

// IDs returns the ids of the permits, as Redisson has them: 32 hexadecimal digits each.
func (l *PermitHold) IDs() []string {
	permits := l.h.Owner().Permits()
	ids := make([]string, len(permits))
	for i, id := range permits {
		ids[i] = hex.EncodeToString(id[:])
	}
	return ids
}

// String returns the name of the semaphore and how many permits they are. It does not say whether
// they are still held.
func (l *PermitHold) String() string {
	if l == nil || l.Hold == nil {
		return "PermitHold(none)"
	}
	return fmt.Sprintf("PermitHold(%d of %q)", len(l.h.Owner().Permits()), reason.Shorten(l.h.Name))
}

// Format implements fmt.Formatter: String, whatever the verb.
func (l *PermitHold) Format(f fmt.State, verb rune) { redact.Format(f, verb, l.String()) }

// MarshalText implements encoding.TextMarshaler, for slog and JSON: String.
func (l *PermitHold) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// ofSize has the options of an Acquire of so many.
func ofSize(n int, opts []Option) []Option {
	return append(opts[:len(opts):len(opts)], permitCount(n))
}

// permitCount is how many permits are asked for. Its place is at the end of the options, where
// nobody else can put one.
type permitCount int

func (n permitCount) apply(o *options) { o.permits = int(n) }

func permitted(h *Hold, err error) (*PermitHold, error) {
	if err != nil {
		return nil, err
	}
	return &PermitHold{Hold: h}, nil
}

// permitTaker is a number of permits of a semaphore, for Do.
type permitTaker struct {
	s PermitSemaphore
	n int
}

func (t permitTaker) Lock(ctx context.Context, opts ...Option) (*PermitHold, error) {
	return t.s.Acquire(ctx, t.n, opts...)
}

func (t permitTaker) TryLock(ctx context.Context, opts ...Option) (*PermitHold, error) {
	return t.s.TryAcquire(ctx, t.n, opts...)
}

func (t permitTaker) patience() time.Duration { return t.s.m.patience() }

// permitting is the future of a PermitSemaphore.
type permitting struct {
	fut Future[*PermitHold]
	of  *Future[*Hold]
}

func permitAsync(of *Future[*Hold]) *Future[*PermitHold] {
	f := &permitting{of: of}
	f.fut.source = f
	of.hearDirectly(func(h *Hold, err error) { f.fut.settle(permitted(h, err)) })
	return &f.fut
}

// The methods below make it the source of its future.

func (f *permitting) executor() *executor.Executor { return f.of.source.executor() }
func (f *permitting) abandon()                     { f.of.source.abandon() }
func (f *permitting) drop(h *PermitHold)           { f.of.source.drop(h.Hold) }
