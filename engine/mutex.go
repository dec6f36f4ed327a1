package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// Mutex is a re-entrant lock. Engine.Mutex, SpinMutex, FairMutex and FencedMutex return one, and so
// do the halves of an RWMutex; their documentation says how they differ. All users of a name on one
// server share one lock, including Redisson's RLock. A Mutex is a small value without state of its
// own, and making one costs no I/O. The zero Mutex is not usable: its methods return ErrInvalid.
type Mutex struct {
	home  *Engine
	key   driver.Key
	route uint64
	name  string
	err   error // the name is not usable

	permits int // that are wanted, of a PermitSemaphore
}

// maxName bounds a lock's name.
const maxName = 64 << 10

// Mutex returns the lock of that name. If the name cannot be used, the first call that
// needs it returns ErrInvalid. A name must not be empty. As mapped by Config.NameMapper
// it must not be empty, longer than 64 KiB or contain a zero byte. In a cluster its
// braces must not put its channel into another slot than its key, as those of a{b do.
func (e *Engine) Mutex(name string) Mutex { return e.mutex(name, kind.Mutex) }

// SpinMutex returns the lock of that name in a form that neither publishes its releases
// nor subscribes. A waiter polls instead, like one of Redisson's RSpinLock: after about
// 1 ms, then less and less often, up to about every 128 ms; see Backoff.
//
// Use it for names that very many processes take, but rarely at the same time. It and
// Mutex(name) are one lock: they exclude and re-enter each other. But its release does not
// wake a waiter of Mutex(name) in another process, which sleeps until its next look.
func (e *Engine) SpinMutex(name string) Mutex { return e.mutex(name, kind.Spin) }

// FencedMutex returns the lock of that name in a form whose grants are counted: Hold.Token is
// higher than that of every hold of the lock before it. Send the token along with what you
// write, and have the store refuse a write whose token is lower than one that it has seen.
// Then a holder that was paused for longer than its lease, and wakes up after somebody else
// has got the lock, does no harm. See docs/fencing.md.
//
// On the wire it is Redisson's RFencedLock. It and Mutex(name) are one lock, but only the grants of a
// FencedMutex are counted: under a context that carries a hold without a token the error Is
// ErrKindConflict. The server grants every hold, even if the next holder is a waiter of the same
// process. In a cluster, a FencedMutex is not granted while its slot moves to another node; what is
// held stays held.
//
// The counter is a key of its own, redisson_lock_token:{name}, without an expiry. If it is
// deleted, evicted, or lost in a failover, the tokens begin again; ask for replicas (see Acked)
// to keep them through a failover.
func (e *Engine) FencedMutex(name string) Mutex { return e.mutex(name, kind.Fenced) }

// FairMutex returns the lock of that name whose waiters, of all processes, get it in the order
// in which they reached the server. On the wire it is Redisson's RFairLock: threads of Java and
// goroutines wait in one queue.
//
// A waiter has its place on the server from its first try until it has the lock or gives up. It
// keeps the place while its connection is lost and comes back within Config.FairWaitTimeout. It loses
// the place, and begins anew at the end,
//
//   - if the connection breaks during one of its tries, whose outcome is then unknown;
//   - if it is its turn and it does not try for three seconds while its channel has no subscriber:
//     its process has died, or cannot reach the server. Dead waiters that stand one behind the
//     other share these three seconds. In a cluster without sharded messages, and beside Redisson's
//     clients, that takes Config.FairWaitTimeout.
//
// TryLock takes a free lock that nobody waits for, and never queues. A waiter costs a
// subscription of its own, and a command every 5 to 10 seconds, or for each lease of the holder if
// that is shorter. Waiters of one process do not hand the lock over to each other (see
// Config.HandOverTime): it might be another's turn.
//
// In a cluster a FairMutex is not granted while its slot moves to another node, since the queue
// is in keys of its own. What is held stays held; its Unlock may wait for the move.
//
// A name is a FairMutex or a Mutex, not both: in one engine the second is ErrKindConflict. The server
// does not notice it, and a Mutex overtakes the queue.
func (e *Engine) FairMutex(name string) Mutex { return e.mutex(name, kind.Fair) }

func (e *Engine) mutex(name string, k kind.Kind) Mutex {
	mapped := name
	if e.cfg.NameMapper != nil {
		mapped = e.cfg.NameMapper(name)
	}
	m := Mutex{home: e, key: driver.Key{Name: mapped, Kind: k}, name: name}
	switch {
	case name == "" || mapped == "":
		m.err = lockerr.Invalid("the name of a lock must not be empty")
	case len(mapped) > maxName:
		m.err = lockerr.Invalid("the name of a lock must be at most %d bytes, not %d", maxName, len(mapped))
	case strings.Contains(mapped, "\x00"):
		m.err = lockerr.Invalid("the name of a lock must not contain a zero byte")
	case e.table.Client.Clustered():
		m.err = m.key.ValidInCluster()
	}
	m.route = e.table.Client.Route(mapped)
	return m
}

var errZeroMutex = lockerr.Invalid("the zero Mutex: get one from Engine.Mutex")

// Name returns the name as you gave it.
func (m Mutex) Name() string { return m.name }

// String returns the kind and the name: FairMutex("orders:42").
func (m Mutex) String() string {
	return fmt.Sprintf("%s(%q)", typeNames[m.key.Kind], lockerr.Shorten(m.name))
}

var typeNames = [kind.Kinds]string{
	kind.Mutex: "Mutex", kind.Spin: "SpinMutex", kind.Fenced: "FencedMutex", kind.Fair: "FairMutex",
	kind.Read: "Reader", kind.Write: "Writer", kind.Permit: "PermitSemaphore",
}

// Lock waits for the lock as long as ctx lives, or as long as Wait allows. ctx governs
// the acquisition only: once the lock is granted, ctx has no influence on the hold.
//
// If ctx is the Context of a live hold of this name, or was made from it, Lock
// re-enters: see Hold.Context.
func (m Mutex) Lock(ctx context.Context, opts ...Option) (*Hold, error) {
	return m.acquire(ctx, opts, false)
}

// TryLock asks the server once whether the lock is free, and never waits for it. If somebody
// else holds it, the error is a *NotAcquiredError that Is ErrHeld.
//
// It waits for one answer, up to Config.CommandTimeout: without a connection, while the server
// refuses everything for now (a failover, a slot that moves, LOADING), and if an answer is lost.
// After that the error is ErrUnavailable, with the latest reason.
func (m Mutex) TryLock(ctx context.Context, opts ...Option) (*Hold, error) {
	return m.acquire(ctx, opts, true)
}

func (m Mutex) acquire(ctx context.Context, opts []Option, once bool) (h *Hold, err error) {
	if m.home == nil {
		return nil, notAcquired("", errZeroMutex)
	}
	var seen *observation
	if m.home.observer != nil {
		ctx, seen = m.home.observe(ctx, m.acquisition(once), false)
		defer finishSync(seen, &h, &err)
	}
	var done <-chan struct{}
	if ctx != nil {
		done = ctx.Done() // before anything is asked for: it may be the user's, and panic
	}
	a, err := m.home.lock(ctx, m, opts, once, false, seen)
	if err != nil {
		return nil, err
	}
	return a.wait(ctx, done)
}

// LockAsync is Lock without the waiting: it never blocks. The future completes when the
// lock is granted, or when ctx or Wait ends the waiting. A pending future costs a few
// hundred bytes, no goroutine and no timer of its own. Abandon a future that you no
// longer want.
func (m Mutex) LockAsync(ctx context.Context, opts ...Option) *Future[*Hold] {
	return m.acquireAsync(ctx, opts, false)
}

// TryLockAsync is TryLock without waiting for the server's answer.
func (m Mutex) TryLockAsync(ctx context.Context, opts ...Option) *Future[*Hold] {
	return m.acquireAsync(ctx, opts, true)
}

func (m Mutex) acquireAsync(ctx context.Context, opts []Option, once bool) (fut *Future[*Hold]) {
	if m.home == nil {
		return failedFuture[*Hold](nil, notAcquired("", errZeroMutex))
	}
	var seen *observation
	if m.home.observer != nil {
		ctx, seen = m.home.observe(ctx, m.acquisition(once), true)
		defer finishFuture(seen, &fut)
	}
	a, err := m.home.lock(ctx, m, opts, once, true, seen)
	if err != nil {
		seen.finish(err)
		return failedFuture[*Hold](m.home, err)
	}
	return &a.fut
}

// ForceUnlock takes the lock away from its holder, and reports whether there was one. The holder
// learns of it at its next renewal, Extend or Unlock; if another caller of its process waits, also
// when that caller would try (docs/promises.md). Until then it may keep working. The command cannot
// be repeated safely, so it is sent once: if its answer is lost, or does not come within
// Config.CommandTimeout, the error is ErrOutcomeUnknown.
func (m Mutex) ForceUnlock(ctx context.Context, opts ...ForceOption) (bool, error) {
	return m.forceUnlock(ctx, opts, true).answer(ctx)
}

// ForceUnlockAsync is ForceUnlock without the waiting. It never blocks. If ctx ends first, the
// future ends, with ErrOutcomeUnknown if the command was sent. Abandon takes nothing back: the
// command continues.
func (m Mutex) ForceUnlockAsync(ctx context.Context, opts ...ForceOption) *Future[bool] {
	return &m.forceUnlock(ctx, opts, false).fut
}

func (m Mutex) forceUnlock(ctx context.Context, opts []ForceOption, waits bool) *query[bool] {
	o := forceOptionsOf(opts)
	return startQuery(ctx, m, querySpec[bool]{
		effect: writesOnce, invalid: o.invalid,
		encode: func(dst []byte, form resp.ScriptForm) []byte {
			return m.home.table.AppendForce(dst, form, m.key, o.holder)
		},
		result: m.changed,
	}, waits)
}

func forceOptionsOf(opts []ForceOption) (o forceOptions) {
	for _, opt := range opts {
		if opt == nil {
			o.invalid = lockerr.Invalid("a nil ForceOption")
			break
		}
		opt.applyForce(&o)
	}
	return o
}

// changed is the verdict of a script that says whether it did what it is for.
func (m Mutex) changed(v resp.Value, why error) (bool, error) {
	switch {
	case why != nil:
		return false, m.about(why)
	case v.Kind != wire.KindInt:
		return false, m.about(lockerr.Wrap(ErrOutcomeUnknown, driver.ErrReply))
	case v.Int == script.Unheard:
		m.home.logNotPublished(m.key.Name)
	}
	return v.Int == script.Done || v.Int == script.Unheard, nil
}

// about names the lock in an error, if it has a name.
func (m Mutex) about(err error) error {
	if m.name == "" {
		return err
	}
	return withKind(m.key.Kind.What(), m.name, err)
}

// RWMutex is a lock that many may read at the same time, or one may write. On the wire it is
// Redisson's RReadWriteLock. It has two halves, which are used like a Mutex: same methods, same
// options, same errors. Many readers may hold it, and any goroutine may unlock each of them.
//
// The plain readers of an engine are one owner on the server: the first acquires, the others join
// it without a command, and the last one releases. State lists one, IfHolder takes the lock from all of them,
// and they are lost together. The Unlock of a reader that is not the last asks no server. A reader with a
// Lease, MaxHold or Acked, or in a RedLock, is an owner of its own.
//
// If the readers have held the lock for longer than Config.HandOverTime, a new one waits up to 10 ms for them to
// release it, so that a writer of another process gets a chance; then it joins. TryLock joins at once.
// With a negative HandOverTime each reader is an owner of its own.
//
// The context of a read lock re-enters the reader, that of a write lock the writer. A Reader under
// the context of its Writer is granted at once, and is a hold of its own: it stays when the writer
// is unlocked. A Writer under the context of its Reader fails at once with ErrReentry, for it would
// wait for itself. Pawl knows this from contexts: a Lock of the reader by a goroutine that already
// reads, but without the context of that hold, is another reader, and dead-locks if a writer waits
// meanwhile.
//
// The readers and writers of one engine take turns, as with sync.RWMutex: a reader that arrives
// while a writer of this engine waits or writes is served after that writer, and before the next
// one. So neither starves the other within a process. Between processes there is no order: the
// first to ask after a release gets the lock, and readers of others that never end keep a writer
// waiting. TryLock asks without regard to turns.
//
// A name is either an RWMutex or a Mutex. In one engine the second is ErrKindConflict; if another
// process uses the name as the other, the lock counts as held. In a cluster, a reader is not granted
// while the slot of the lock moves to another node; what is held stays held, and can be unlocked.
//
// A reader that dies keeps writers out until its lease ends. A Java program with Redisson may
// cut the leases of fixed length of other readers: its watchdog sets the lock's time to its own.
//
// The zero RWMutex is not usable: its methods return ErrInvalid.
type RWMutex struct{ reader, writer Mutex }

// RWMutex returns the read-write lock of that name. The rules for names are those of Mutex.
func (e *Engine) RWMutex(name string) RWMutex {
	return RWMutex{e.mutex(name, kind.Read), e.mutex(name, kind.Write)}
}

// Reader returns the half that many may hold at the same time. It takes no MinHold: that keeps
// others out, and a read lock lets readers in. A lock that a Reader waits for is held by a
// writer. ForceUnlock takes the lock away from all its readers, with IfHolder from that owner
// alone; it does nothing if the lock is written. The re-entry of a plain reader asks no server: a Lease of
// its own ends it here, and Acked is ErrInvalid.
func (l RWMutex) Reader() Mutex { return l.reader }

// Writer returns the half that excludes all others. ForceUnlock takes the lock away from its
// writer, and from readers beside that; it does nothing if the lock is read.
func (l RWMutex) Writer() Mutex { return l.writer }

// State is Mutex.State: Mode says whether the lock is read or written.
func (l RWMutex) State(ctx context.Context) (State, error) { return l.writer.State(ctx) }

// Downgrade gives back a write lock and keeps a read lock, which it returns, without a moment in
// between in which somebody else could write. Others that wait to read are woken. w ends as with
// Unlock, with its contexts and its re-entries. The options are those of the read lock, but for
// NonReentrant, which is an error here.
//
// Like TryLock, it waits for the answers of the server, and not for other callers. If it fails,
// also with ErrClosed during Shutdown, w is held as before, or was lost, which the error says.
// (With ErrWrongType the key is something else: w was lost, and reports it at its next renewal.) If
// the read lock was granted, but nobody knows whether the write lock was released before ctx ended,
// its release continues in the background, as with Unlock, and Downgrade has succeeded.
//
// While a cluster moves the slot of the lock to another node, no reader is granted. If that takes
// longer than Config.CommandTimeout, Downgrade fails with ErrNotAcquired and ErrUnavailable, and w is
// held as before. Call it again after the move.
//
// w must be a hold of this lock's Writer, and not a re-entry.
func (l RWMutex) Downgrade(ctx context.Context, w *Hold, opts ...Option) (*Hold, error) {
	if err := l.mayDowngrade(ctx, w); err != nil {
		return nil, notAcquired(l.writer.name, err)
	}
	// Two commands, in this order, do it: a read lock beside the writer, and then the release.
	// Each of them is what it always is, also if its answer is lost.
	asking, done := context.WithCancel(Detach(ctx))
	defer done() // or a writer would keep a context of each attempt
	r, err := l.reader.TryLock(w.Context(asking), opts...)
	if err != nil {
		return nil, err
	}
	kept := false
	defer func() {
		if !kept { // also if a context of the user's panics
			r.UnlockAsync()
		}
	}()
	if err = w.Err(); err == nil {
		if err = w.Unlock(ctx); !errors.Is(err, ErrLost) {
			done() // asks a context of the user's, too
			kept = true
			return r, nil
		}
	}
	// The writer was gone by then, so others may have written before the read lock.
	return nil, notAcquired(l.writer.name, err)
}

var errNoWriter = lockerr.Invalid("Downgrade: the hold is not a write hold of this lock")

func (l RWMutex) mayDowngrade(ctx context.Context, w *Hold) error {
	switch {
	case l.writer.home == nil:
		return errZeroMutex
	case ctx == nil:
		return lockerr.ErrNoContext
	case w == nil:
		return errNoWriter
	}
	one, ok := w.h.(*lockHold)
	switch {
	case !ok || one.home() != l.writer.home || kind.Kind(one.Kind) != kind.Write || one.Name != l.writer.name:
		return errNoWriter
	case one.Parent != nil:
		return lockerr.Invalid("Downgrade of a re-entry: the writer that it re-enters would still write")
	}
	return w.Err()
}
