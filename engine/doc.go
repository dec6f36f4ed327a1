// Package engine is a distributed lock engine on Redis or Valkey. Its locks are
// Redisson's on the wire: a Pawl lock and a Redisson RLock of the same name on the same
// database exclude each other and wake each other's waiters, in Java or in Go.
//
//	eng, err := engine.Open(ctx, "redis://127.0.0.1:6379")
//	...
//	defer eng.Close()
//
//	// Run a function under a lock.
//	err = eng.Mutex("orders:42").Do(ctx, func(ctx context.Context, h *engine.Hold) error {
//		return pay(ctx)
//	})
//
//	// Or by hand, for ten seconds, if nobody else has it.
//	h, err := eng.Mutex("orders:42").TryLock(ctx, engine.Lease(10*time.Second))
//	...
//	err = h.Unlock(ctx)
//
// Use one Engine for each process and server. It has three connections (in a cluster
// three to each primary; two more if replicas must acknowledge) and carries any number of
// locks. A Mutex is a small value that names a lock. A Hold is a lock that is held; it
// belongs to the code that has it, not to a goroutine.
//
// # Leases
//
// The server forgets a lock when its lease ends. Without the option Lease, a watchdog
// renews the lease every third of Config.Lease until Unlock; MaxHold bounds that. With
// Lease(d), only Extend renews it.
//
// A hold ends here before it can end on the server, by Config.Margin: the contexts of
// Hold.Context end, Done is closed, Err says why, and ValidUntil has passed. The hold is
// then lost for good. If the server turns out to have it still, it is released there.
//
// # Hand-over
//
// An Unlock while others of this process wait in Lock gives the lock to the first of them,
// without a command. On the server the owner stays the same. After Config.HandOver the lock
// is released, so that other processes get their turn. Locks with a Lease, MaxHold or MinHold
// are released each time. A FencedMutex, and a Mutex with Acked, is passed on by one command.
//
// # Replicas
//
// Replication is asynchronous: if the primary dies, the replica that is promoted may not
// know of a lock that is held. With Acked, or Config.Replicas for all locks, a grant or
// renewal counts only once replicas have acknowledged it. With AllReplicas, whichever
// replica is promoted knows of the lock; in return nothing is granted while a replica is
// away.
//
// Releases are not acknowledged. If the primary is replaced, the releases of the last
// seconds are sent again to the new one.
//
// # Contexts
//
// The context of Lock, TryLock and LockAsync governs the acquisition only. Once the lock
// is granted, it has no influence on the hold. If the context ends first and the server
// then grants the lock, the lock is given back.
//
// The context of Unlock, Extend, State and ForceUnlock bounds the waiting for the answer.
// It does not keep Unlock from releasing: with a context that has already ended, Unlock
// still releases, and its error says that it did not wait for the answer (unless that was
// there already).
//
// The context of Future.Await bounds that wait. The operation goes on.
//
// Hold.Context makes a context that ends with the hold and carries it: acquiring the same
// name under it re-enters. Do passes such a context to its function. Goroutines that share
// it take turns. Detach takes the holds out of a context, for work that should not re-enter
// but wait as any other caller does.
//
// # Many locks as one
//
// LockMany takes the locks of many names, or none of them; Multi does so with locks of
// several engines. A Hold ends with the first of its locks. What is said of Lock,
// TryLock, LockAsync, Do, Unlock and Extend holds for them too; their errors name the lock
// that is meant.
//
// # One lock on several servers
//
// RedLock takes one lock on several independent servers: the owner of a majority of them has
// it. A Hold ends when too few of them are certain. What is said of Lock, TryLock,
// LockAsync, Do, Unlock and Extend holds for it too: with a majority they succeed, and
// else their errors say what was missing at which server.
//
// # Semaphores and latches
//
// A Semaphore is a number of permits, a Latch a count that goes down to zero. They have no
// owner and no lease: what a process has that dies stays taken. Each operation is executed
// once or not at all: one without an answer is sent again with its number, of which the server
// keeps the latest for each engine, and given up after 50 s.
//
// # Errors
//
// Every error Is one of the sentinels below, or it is (or wraps) a *resp.ServerError: the
// server refused for a reason of its own, such as a missing right. (A call of a Semaphore or a
// Latch that only asks or sets may return the cause of your context alone: it changed nothing.)
// Most errors say two things, on one line: what is true of the lock, and why.
//
//	engine: lock "orders:42" not acquired: held by another, whose lease ends in 27s unless renewed
//	engine: lock "orders:42" not acquired: context deadline exceeded: server is unavailable: dial 10.0.0.7:6379: connect: connection refused
//
// What is true of the lock:
//
//   - ErrNotAcquired: this call does not hold the lock and will not. If the server
//     granted it anyway, it is released as soon as the connection works, and at the
//     latest ends with its lease. The error is a *NotAcquiredError, with the name.
//   - ErrLost: the lock was held, and no longer is. Others may hold it.
//   - ErrReleased, ErrNotHeld: the lock was unlocked before.
//   - ErrOutcomeUnknown, from Unlock and Do: nobody knows yet whether the lock was
//     released. The release is repeated in the background as long as the server may have
//     the lock, which is free when its lease has ended at the latest. From Extend: the
//     lease is what it was, or longer. From ForceUnlock: ask State. From Close and
//     Shutdown: some locks end with their leases, or permits of a Semaphore stay taken.
//   - ErrPending, from a future: it goes on, and may still get the lock. Abandon it if you
//     no longer want the lock. From Close and Shutdown: every lock was released, but a
//     callback or hook is still running.
//
// Which operation returns which (a test provokes every one of them, of a Mutex, a MultiLock
// and a QuorumLock):
//
//	                   Open  Lock  Try   Async Do    Unlock Extend State Force Ping  Await Err   Close Shutdown
//	ErrInvalid         x     n     n     n     n     u      x      x     x     x     x     x     .     x
//	ErrNotAcquired     .     x     x     x     x     .      .      .     .     .     .     .     .     .
//	ErrHeld            .     n     n     n     n     .      .      .     .     .     .     .     .     .
//	ErrNotRun          .     .     .     .     n     .      .      .     .     .     .     .     .     .
//	ErrReentry         .     n     n     n     n     .      .      .     .     .     .     .     .     .
//	ErrWrongType       .     n     n     n     n     .      .      x     x     .     .     .     .     .
//	ErrKind            .     n     n     n     n     .      .      .     .     .     .     .     .     .
//	ErrLate            .     n     n     n     n     .      .      .     .     .     .     .     .     .
//	ErrNotAcked        .     n     n     n     n     .      x      .     .     .     .     .     .     .
//	ErrOverloaded      .     .     .     n     .     .      .      .     .     .     .     .     .     .
//	ErrUnavailable     x     n     n     n     u     u      u      x     x     x     .     .     .     .
//	ErrClosed          .     n     n     n     n     u      .      x     x     x     .     .     .     x
//	ErrOutcomeUnknown  .     .     .     .     x     x      x      .     x     .     .     .     x     x
//	ErrLost            .     n     n     n     x     x      x      .     .     .     .     x     .     .
//	ErrReleased        .     n     n     n     n     .      .      .     .     .     .     x     .     .
//	ErrNotHeld         .     .     .     .     .     x      x      .     .     .     .     .     .     .
//	ErrPending         .     .     .     .     .     .      .      .     .     .     x     .     x     x
//
//	n  joined with ErrNotAcquired      u  joined with ErrOutcomeUnknown
//
// Open stands for New and ParseURL, Try for TryLock, Async for the futures of LockAsync
// and TryLockAsync, Do for TryDo, Unlock for UnlockAsync, State for StateAsync, Force for
// ForceUnlock and ForceUnlockAsync, Err for the cause of a Hold.Context. Await stands for
// everything that waits for futures; the error of the future itself comes on top.
//
// The columns of a lock and its hold (Lock to Extend, Await and Err) are those of a MultiLock
// and a QuorumLock, too. The error of a MultiLock is that of one of its locks; from Unlock and
// Extend it joins those of several. The error of a QuorumLock says what kept it from a
// majority: what is true of one server only is in the text, and errors.Is does not see it.
//
// Notes:
//
//   - ErrHeld: somebody else holds the lock, and NotAcquiredError.TTL is what is left of
//     the lease. TryLock returns it at once. Lock returns it when Wait is over or its
//     context has ended; then the context's cause is joined. TryDo returns (false, nil)
//     instead.
//   - ErrUnavailable: there is no connection, or the server refuses for now. Lock waits. If
//     Wait ends or the context ends before there is an answer, ErrUnavailable is joined
//     (from Do it then comes with ErrNotAcquired). TryLock and TryLockAsync are for
//     one answer, and wait for it up to Config.CommandTimeout: without a connection, and
//     through refusals for now. State, ForceUnlock,
//     Extend and Ping wait no longer than that, with a connection either (Extend also for
//     Config.AckTimeout if replicas must acknowledge). State and Ping also return it if
//     their context ends before the answer.
//   - ErrHeld and ErrUnavailable never come together. The latest completed try of the name
//     decides, whichever caller in this process made it. If this process holds the lock, it
//     is ErrHeld. A call that has waited as long as Wait or the deadline of its context allows
//     always returns one of the two: ErrUnavailable if no try has been answered, or if the deadline
//     had passed before the call. So does a TryLock whose own try has no answer by then, whatever
//     earlier tries were told. Only a call that is cancelled may return neither: when no try has
//     completed yet.
//   - A nil context is ErrInvalid. Unlock still releases; Hold.Context and Detach return a
//     context that has already ended, with ErrInvalid as its cause.
//   - ErrUnavailable or ErrClosed beside ErrOutcomeUnknown: the lease ended, or the engine
//     was closed, before the release was answered. From Extend: there was no answer in time.
//   - ErrLost or ErrReleased beside ErrNotAcquired: the context was that of a hold, and that
//     hold has ended.
//   - ErrNotAcked: only with Acked or Config.Replicas. An *AckError says how many replicas
//     acknowledged and how many were wanted. The lock was given back; after Extend the lease
//     counts as it was.
//   - ErrReentry: only with NonReentrant, and for the writer of an RWMutex under the context of
//     its reader.
//   - ErrKind: this engine uses the name for a lock of another sort, or the context carries a
//     hold of one.
//   - ErrOverloaded: only from LockAsync and TryLockAsync, if more than Config.MaxInFlight
//     commands wait for an answer or 4 MiB are unsent. Synchronous calls wait instead.
//   - Do joins what its function returned, a hold that was lost meanwhile, and what Unlock
//     returned. With ErrNotRun the function has not run. Without it the function has run,
//     even if it returned an error of another lock. TryDo says by its first result if it has run:
//     false without an error means that another owner has the lock, is before you in a fair
//     queue, or competes with you for a RedLock, of which then perhaps nobody has a majority.
//   - Open returns ErrUnavailable at once, with the reason ("connection refused"), if no
//     address can be reached, and after Config.DialTimeout if a server answers but is not
//     ready, or does not answer at all. See New.
//   - A LostError has the Reason.
//
// Of semaphores and latches:
//
//   - Acquire, TryAcquire and their futures fail as Lock, TryLock and theirs do: with
//     ErrNotAcquired, and ErrInvalid, ErrHeld (there are not so many permits), ErrNoPermits (from
//     TryAcquire, also of a PermitSemaphore: nobody has said how many there are),
//     ErrUnavailable, ErrWrongType, ErrClosed, or ErrOutcomeUnknown. The latter says that the
//     command was given up: the server may have granted the permits, and they are lost then.
//   - Release: ErrNotHeld, ErrLost (by Close), and ErrOutcomeUnknown, alone if it was given up
//     after 50 s, else joined with what ended the waiting; then it goes on.
//   - CountDown, SetPermits, AddPermits, Drain, TrySetCount and their futures: ErrOutcomeUnknown if it was sent;
//     it may be executed still. If not, it was not sent and never will be: ErrUnavailable, or the
//     context's cause alone if that ended while a server was to be had.
//   - Await: ErrPending with the cause, if the latch is closed still.
//   - All of them but Release: ErrKind. This engine uses the name for something else meanwhile:
//     a semaphore, a latch and a lock of one name are one key.
//   - All of them: ErrInvalid, ErrWrongType, ErrClosed, ErrUnavailable.
//   - A PermitSemaphore is acquired as a lock is: its permits have owners and leases. What else it
//     can do fails as ForceUnlock does, and what only asks as State does; or with ErrKind.
package engine
