package engine

import (
	"context"
	"errors"

	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

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
// The context of a read lock re-enters the reader, that of a write lock the writer. A Reader
// under the context of its Writer is granted at once, and is a hold of its own: it stays when the
// writer is unlocked. A Writer under the context of its Reader fails at once with ErrReentry, for
// it would wait for itself. Contexts are how Pawl knows: a Lock of the reader by a goroutine that
// reads already, but without the context of that hold, is another reader, and dead-locks if a
// writer waits meanwhile.
//
// The readers and writers of one engine take turns, as with sync.RWMutex: a reader that comes
// while a writer of this engine waits or writes comes after that, and readers that have waited
// for a writer come before the next one. So neither starves the other within a process. Between
// processes there is no order: the first to ask after a release gets the lock, and readers of
// others that never end keep a writer waiting. TryLock asks without regard to turns.
//
// A name is either an RWMutex or a Mutex. If an engine uses it for one of them the other is
// ErrKindConflict; if it is the other elsewhere it counts as held. In a cluster, a reader is not granted
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
// between in which somebody else could write. Others that wait to read are woken. w ends as by
// Unlock, with its contexts and its re-entries. The options are those of the read lock, but for
// NonReentrant, which is an error here.
//
// It is like TryLock: it waits for the answers of the server, and for nobody. If it
// fails, also with ErrClosed during Shutdown, w is held as before, or was lost, which the error
// says. (With ErrWrongType something else has the name: w was lost, and is told at its next
// renewal.) If the read lock was granted, but nobody knows whether the write lock was released
// before ctx ended, that goes on in the background, as with Unlock, and Downgrade has succeeded.
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
