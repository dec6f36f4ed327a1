// Package engine is a distributed lock engine on Redis or Valkey. Its locks are
// Redisson's on the wire: whoever uses an RLock of the same name on the same
// database, in Java or in Go, is excluded and woken.
//
//	eng, err := engine.Open(ctx, "redis://127.0.0.1:6379")
//	...
//	defer eng.Close()
//
//	// Run something under a lock.
//	err = eng.Mutex("orders:42").Do(ctx, func(ctx context.Context, h *engine.Hold) error {
//		return pay(ctx)
//	})
//
//	// Or by hand: one attempt, for ten seconds.
//	h, err := eng.Mutex("orders:42").TryLock(ctx, engine.Lease(10*time.Second))
//	...
//	err = h.Unlock(ctx)
//
// One Engine for each process and server is right; it has three connections
// (in a cluster to each primary; two more if replicas must acknowledge), and carries
// any number of locks. A Mutex is a small value. A Hold is a lock that is
// held; it belongs to whoever has it, not to a goroutine.
//
// # Leases
//
// The server forgets a lock when its lease ends. Without the option Lease a
// watchdog renews it every third of Config.Lease until Unlock; MaxHold bounds that.
// With Lease(d) nothing renews it but Extend.
//
// A hold ends here before it can end on the server, by Config.Margin: Done is
// closed, contexts of Hold.Context end, Err says why, and ValidUntil has passed.
// It is then lost for good, also if the server turns out to have it still; in
// that case it is released there.
//
// # Replicas
//
// Replication is asynchronous: if the primary dies, the replica that is promoted may
// not know of a lock that is held. With Acked, or Config.Replicas for all, a grant and
// every renewal counts only once replicas have acknowledged it.
//
// # Contexts
//
// The context of Lock, TryLock and LockAsync governs the acquisition only. Once the
// lock is granted it has no influence on the hold. If it ends first and the server
// grants the lock all the same, the lock is given back.
//
// The context of Unlock, Extend, State and ForceUnlock bounds the waiting for the
// answer. It does not keep Unlock from releasing: a context that has ended already
// still releases, and the error says that nobody waited for it.
//
// The context of Future.Await bounds that wait; the operation goes on.
//
// Hold.Context makes a context that ends with the hold, and carries it: acquiring
// the same name under it re-enters. Do passes such a context to its function.
// Goroutines that share it take turns. Detach takes the holds out of a context,
// for work that shall wait like a stranger.
//
// # Errors
//
// Every error Is one of the sentinels below, or is (or wraps) a *resp.ServerError
// with which the server refused for a reason of its own, such as a missing right.
// Most say two things: what is true of the lock, and why.
//
// What is true of the lock:
//
//   - ErrNotAcquired: this call does not hold the lock and will not. If the server
//     granted it all the same, it is released as soon as the connection works, at
//     the latest by its lease.
//   - ErrLost: it was held, and is not any more. Others may hold it.
//   - ErrReleased, ErrNotHeld: it was unlocked before.
//   - ErrOutcomeUnknown, of Unlock and Do: released or not, nobody knows yet; the
//     release is repeated in the background until ValidUntil, so the lock is free
//     at the latest when its lease has ended. Of Extend: the lease is what it was,
//     or longer. Of ForceUnlock: ask State. Of Close: some locks end with their leases.
//   - ErrPending: the future goes on, and may still get the lock: Abandon it if
//     it is not wanted.
//
// Which operation returns which (a test provokes every one of them):
//
//	                   Open  Lock  Try   Async Do    Unlock Extend State Force Ping  Await Err   Close Shutdown
//	ErrInvalid         x     n     n     n     n     .      x      x     x     .     x     .     .     .
//	ErrNotAcquired     .     x     x     x     x     .      .      .     .     .     .     .     .     .
//	ErrReentry         .     n     n     n     n     .      .      .     .     .     .     .     .     .
//	ErrWrongType       .     n     n     n     n     .      .      x     x     .     .     .     .     .
//	ErrLate            .     n     n     n     n     .      .      .     .     .     .     .     .     .
//	ErrNotAcked        .     n     n     n     n     .      x      .     .     .     .     .     .     .
//	ErrOverloaded      .     .     .     n     .     .      .      .     .     .     .     .     .     .
//	ErrUnavailable     x     n     n     n     u     u      u      x     x     x     .     .     .     .
//	ErrClosed          .     n     n     n     n     u      .      x     x     x     .     .     .     x
//	ErrOutcomeUnknown  .     .     .     .     x     x      x      .     x     .     .     .     x     x
//	ErrLost            .     n     n     n     x     x      x      .     .     .     .     x     .     .
//	ErrReleased        .     n     n     n     n     .      .      .     .     .     .     x     .     .
//	ErrNotHeld         .     .     .     .     .     x      x      .     .     .     .     .     .     .
//	ErrPending         .     .     .     .     .     .      .      .     .     .     x     .     .     .
//
//	n  joined with ErrNotAcquired      u  joined with ErrOutcomeUnknown
//
// Open stands for New and ParseURL, Try for TryLock, Async for the futures of
// LockAsync and TryLockAsync, Do for TryDo, Unlock for UnlockAsync, Force for
// ForceUnlock, Err for the cause of a Hold.Context, Await for everything that waits
// for futures; what the future itself failed with comes on top.
//
// Notes:
//
//   - Somebody else holds the lock: *NotAcquiredError, from TryLock at once, from
//     Lock when Wait is over. Lock without Wait goes on until its context ends; then
//     ErrNotAcquired is joined with the context's cause. TryDo answers (false, nil).
//   - No connection, or a server that refuses for now: Lock waits; if Wait is over
//     before it has a connection, ErrUnavailable is joined (of Do, too, with
//     ErrNotAcquired then). TryLock and TryLockAsync try once and fail with
//     ErrUnavailable, without a connection after Config.CommandTimeout, as State,
//     ForceUnlock, Extend and Ping do.
//   - ErrUnavailable and ErrClosed beside ErrOutcomeUnknown: the lease ended, or the
//     engine was closed, before the release was answered.
//   - ErrLost and ErrReleased beside ErrNotAcquired: the context was a hold's, and
//     that hold has ended.
//   - ErrNotAcked: only with Acked or Config.Replicas; an *AckError says how many replicas
//     acknowledged and how many were wanted. The lock was given back; of Extend: the
//     lease counts as it was.
//   - ErrReentry: only with NonReentrant.
//   - ErrOverloaded: LockAsync only, more than Config.MaxInFlight commands without
//     an answer, or 4 MiB unsent. Synchronous calls wait instead.
//   - Do joins what its function returned, a hold lost meanwhile, and what Unlock
//     returned: its errors without ErrNotAcquired mean that the function has run.
//   - A LostError has the Reason.
package engine
