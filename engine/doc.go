// Package engine is a distributed lock engine on Redis or Valkey. On the wire its locks are
// Redisson's: a Pawl lock and a Redisson RLock of the same name on the same database exclude
// each other and wake each other's waiters, in Java or in Go.
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
//	// Or lock by hand, for ten seconds, unless somebody else has the lock.
//	h, err := eng.Mutex("orders:42").TryLock(ctx, engine.Lease(10*time.Second))
//	...
//	err = h.Unlock(ctx)
//
// Open one Engine for each process and server. It has three connections to a server (to each
// primary of a cluster), two more if replicas must acknowledge, and carries any number of locks.
// A Mutex is a small value that names a lock. A Hold is a lock that is held. It belongs to the
// code that has it, not to a goroutine: any goroutine may unlock it.
//
// # Leases
//
// Every lock on the server has a lease, and is free when the lease ends. By default a watchdog
// renews the lease (Config.Lease, 30 s) after a third of it, until Unlock. MaxHold limits how
// long it does so. With the option Lease(d) the lease is fixed, and only Extend prolongs it.
//
// # Loss
//
// A hold can be lost before Unlock: the network fails, the process is paused, or somebody deletes
// the key. It ends in this process before its lease ends on the server, by Config.Margin: the
// contexts that Hold.Context made are cancelled, Done is closed, and Err says why. ValidUntil is
// the time until which the lock is certainly yours. A lost hold never comes back; if the server
// still has it, the engine releases it there.
//
// A process that is paused for longer than the margin notices too late. Where that matters, let
// the database check the Token of a FencedMutex (docs/fencing.md).
//
// # Contexts
//
// The context of Lock, TryLock and LockAsync limits the acquisition, and has no influence on the
// hold. If it ends first and the server grants the lock anyway, the engine gives the lock back.
//
// The context of Unlock, Extend, State and ForceUnlock limits the wait for the reply. Unlock
// releases the lock even with a context that has ended. The context of Future.Await limits that
// call; the operation itself continues.
//
// Hold.Context derives a context that ends with the hold and carries it. A Lock of the same name
// under this context re-enters the hold. Do passes such a context to its function. Detach removes
// the holds from a context, so that a Lock under it waits like any other caller.
//
// # Hand-over
//
// While goroutines of one process wait for a lock, Unlock hands it to the first of them without a
// command. After Config.HandOverTime (10 ms) it releases the lock, so that other processes get a turn.
// See docs/operations.md for the cases in which every Unlock releases.
//
// # Kinds of locks
//
// FairMutex serves waiters in order of arrival across processes. SpinMutex polls instead of
// subscribing. FencedMutex has tokens. RWMutex has a Reader and a Writer. PermitSemaphore has
// permits with leases. LockMany and Multi take several locks, all or none; such a hold ends as
// soon as any of its locks is lost. RedLock takes one lock on several independent servers; its
// hold ends when it can no longer prove that a majority holds the lock. All of these implement
// the interface Lock, permits with PermitSemaphore.Permits, and all are held as a *Hold.
//
// Semaphore and Latch are counters without owners and leases: permits held by a process that dies
// stay taken. Each operation takes effect once. Its command carries a sequence number; if the
// reply is lost, the engine sends the command again with the same number for up to 50 s.
//
// Replication is asynchronous, so a failover may lose a lock. With Acked, or Config.Replicas for
// all locks, a grant or renewal counts only when replicas have acknowledged it
// (docs/durability.md).
//
// # Errors
//
// Every error is one of the sentinels of this package (test with errors.Is), or a
// *resp.ServerError: a reply that no sentinel covers, such as a missing right. The text is one line
// that says what is true of the lock, and why:
//
//	engine: lock "orders:42" not acquired: held by another, whose lease ends in 27s unless renewed
//
// These are the errors to test for:
//
//   - ErrNotAcquired: the call did not get the lock and will not. It comes with the reason:
//     ErrHeld (another owner has it), ErrUnavailable (no server could be asked), ErrClosed and so
//     on. errors.As finds a *NotAcquiredError with the name, the holder and the TTL.
//   - ErrNotRun, from Do and TryDo: the function has not run.
//   - ErrLost: the hold ended before Unlock. errors.As finds a *LostError with the Reason.
//   - ErrNotHeld, ErrReleased: the hold was unlocked before.
//   - ErrOutcomeUnknown: the server may or may not have executed the command. After Unlock the
//     engine repeats the release until the lease ends.
//   - ErrPending, from a future: no result yet. Abandon the future if you no longer want the lock.
//
// docs/errors.md has a table of which operation returns which error.
//
// # More
//
//	docs/promises.md        what you can rely on, and what you cannot
//	docs/deployments.md     the URL of one server, a cluster, sentinels or replicas
//	docs/configuration.md   every setting, with its default
//	docs/operations.md      connections, goroutines, ACL rules, statistics
//	docs/observability.md   metrics, traces, the Observer
//	docs/redisson.md        sharing locks with Redisson
//
// The examples below run as tests. Package enginetest has an engine and a server for your own.
package engine
