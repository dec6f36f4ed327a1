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

// TryAcquire makes one attempt and never waits for permits. If there are too few, the error is a
// *NotAcquiredError that Is ErrHeld.
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
	if n < 0 {
		return false, s.negative(n)
	}
	return s.set(ctx, script.TryPermits, n)
}

// SetPermits has the semaphore have n permits in all, those that are held included. If more are
// held, none is to be had until enough have come back. It is repeated until there is an answer, or
// Config.CommandTimeout or ctx is over: then the error is ErrOutcomeUnknown if it was sent.
func (s PermitSemaphore) SetPermits(ctx context.Context, n int) error {
	if n < 0 {
		return s.negative(n)
	}
	_, err := s.set(ctx, script.SetPermits, n)
	return err
}

// AddPermits gives the semaphore delta more permits, or takes some away if delta is negative. It
// cannot be repeated safely, so it is sent once, as TrySetPermits is.
func (s PermitSemaphore) AddPermits(ctx context.Context, delta int) error {
	_, err := s.set(ctx, script.AddPermits, delta)
	return err
}

// Available returns how many permits are to be had: fewer than none if there are fewer than
// are held.
func (s PermitSemaphore) Available(ctx context.Context) (int, error) {
	available, _, err := s.count(ctx)
	return available, err
}

// Acquired returns how many permits are held, by anybody.
func (s PermitSemaphore) Acquired(ctx context.Context) (int, error) {
	_, acquired, err := s.count(ctx)
	return acquired, err
}

// Capacity returns how many permits there are in all, held or to be had: Redisson's getPermits.
func (s PermitSemaphore) Capacity(ctx context.Context) (int, error) {
	available, acquired, err := s.count(ctx)
	return available + acquired, err
}

// ForceRelease gives a permit back by its id, whether it is held here or elsewhere, and reports
// whether it was held. It comes back once, however often it is given back. Its holder is told at
// its next renewal, and loses all permits that it took together with this one. One with a fixed
// lease is told when it unlocks or extends. If the answer is lost, the error is ErrOutcomeUnknown;
// then call it again.
func (s PermitSemaphore) ForceRelease(ctx context.Context, id string) (bool, error) {
	var raw script.PermitID
	if n, err := hex.Decode(raw[:], []byte(id[:min(len(id), 2*len(raw))])); err != nil || n != len(raw) || len(id) != 2*len(raw) {
		return false, s.m.about(reason.Invalid("%q is not the id of a permit: 32 hexadecimal digits", reason.Shorten(id)))
	}
	return s.change(ctx, writes, func(dst []byte, form resp.Form, c script.Channel) []byte {
		return script.AppendPermitFree(dst, form, s.m.key.Name, []script.PermitID{raw}, c)
	})
}

func (s PermitSemaphore) negative(n int) error {
	return s.m.about(reason.Invalid("a number of permits (%d) must not be negative", n))
}

func (s PermitSemaphore) set(ctx context.Context, what string, n int) (bool, error) {
	if n > math.MaxInt32 || n < math.MinInt32 {
		return false, s.m.about(reason.Invalid("a number of permits (%d) must fit into 32 bits: Redisson has no more", n))
	}
	how := writes
	if what == script.SetPermits {
		how = rewrites
	}
	return s.change(ctx, how, func(dst []byte, form resp.Form, c script.Channel) []byte {
		return script.AppendPermitSet(dst, form, s.m.key.Name, what, int64(n), c)
	})
}

// change sends what changes the semaphore, and reports whether it did.
func (s PermitSemaphore) change(ctx context.Context, how asking, encode func([]byte, resp.Form, script.Channel) []byte) (bool, error) {
	v, err := s.ask(ctx, how, encode)
	switch {
	case err != nil:
		return false, s.m.about(err)
	case v.Kind != wire.KindInt:
		return false, s.m.about(reason.Because(ErrOutcomeUnknown, drive.ErrReply))
	case v.Int == script.Unheard:
		s.m.engine().logUnheard(s.m.key.Name)
	}
	return v.Int == script.Done || v.Int == script.Unheard, nil
}

func (s PermitSemaphore) count(ctx context.Context) (available, acquired int, err error) {
	v, err := s.ask(ctx, reads, func(dst []byte, form resp.Form, c script.Channel) []byte {
		return script.AppendPermitCount(dst, form, s.m.key.Name, c)
	})
	if err == nil && (v.Kind != wire.KindArray || v.Len() != 2) {
		err = reason.Because(ErrWrongType, drive.ErrReply)
	}
	v.Each(func(i int, e resp.Value) bool {
		if i == 0 {
			available = int(e.Int)
		} else {
			acquired = int(e.Int)
		}
		return true
	})
	return available, acquired, s.m.about(err)
}

func (s PermitSemaphore) ask(ctx context.Context, how asking, encode func([]byte, resp.Form, script.Channel) []byte) (resp.Value, error) {
	if err := s.m.usable(); err != nil {
		return resp.Value{}, err
	}
	e := s.m.engine()
	if !fits(e.table.Shard(s.m.route), s.m.key) {
		return resp.Value{}, ErrKind
	}
	return e.ask(ctx, s.m.route, how, func(dst []byte, form resp.Form) []byte {
		return encode(dst, form, e.table.Channel(s.m.key))
	})
}

// fits reports whether the name is not in use as something else. The server would take a Semaphore
// for a PermitSemaphore: both are a number.
func fits(sh *drive.Shard, k drive.Key) bool {
	sh.Lock()
	defer sh.Unlock()
	return sh.Fits(k)
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
// once, whatever becomes of connections. Extend is Redisson's updateLeaseTime, which takes the
// id of any holder's permit, too. If one of them is taken away, the hold is lost, and the others
// are given back.
type PermitHold struct{ *Hold }

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
func (l PermitHold) String() string {
	if l.Hold == nil {
		return "PermitHold(none)"
	}
	return fmt.Sprintf("PermitHold(%d of %q)", len(l.h.Owner().Permits()), reason.Shorten(l.h.Name))
}

// Format implements fmt.Formatter: String, whatever the verb.
func (l PermitHold) Format(f fmt.State, verb rune) { redact.Format(f, verb, l.String()) }

// MarshalText implements encoding.TextMarshaler, for slog and JSON: String.
func (l PermitHold) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

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
	return &PermitHold{h}, nil
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
