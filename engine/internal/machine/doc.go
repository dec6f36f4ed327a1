// Package machine is what decides about one lock name in this process: which command is
// sent next, who gets the lock, when a hold ends, what has to be given back.
//
// What the server has of this process for a name is a Tenure: one owner, its lease, its
// renewals. What a user has of it is a Hold. A tenure has one hold and its re-entries at a
// time; when that is unlocked it may be handed over to the next one that waits, without a
// command. One that cannot is released.
//
// It is pure. It has no socket, no goroutine, no channel, no lock and no code of a user; time
// and randomness come from a Port. A transition is a call, made under the lock of the
// name's shard, with an Effects that takes what is to be done once the lock is given up.
// What must happen under the lock, and neither blocks nor calls back, goes through a port:
// timers, subscriptions, places among the renewals, counters, and the queue of hooks and
// log lines.
//
// Packages drive and engine own what is not pure. Their requests, holds, waits and debts embed
// the machine's, and are their ports.
//
// What happens, and what is called for it under the shard's lock:
//
//	Lock, Unlock, Extend, cancel  Admit, Unlock, Extend, Cancel
//	a reply                       Resource.Replied
//	a timer                       Fired, Rang, PauseOver
//	the channel                   Subscribed, Announced, Cut, Forbidden
//	a renewal                     Renewal, Renewed, Gone
//	a hold is asked               Check
//	contexts have ended           Resource.Told
//	a connection is back          Resume
//	Shutdown, Close               StopWaiting, EndHold, Drop
//
// Then, without the lock, the Effects, in this order: contexts of holds that ended; the next
// command, or recovery, which sends it later; verdicts.
//
// Start reading with Resource, which has the invariants, and its method next.
package machine
