// Package machine is what decides about one lock name in this process: which command is
// sent next, who gets the lock, when a hold ends, what has to be given back.
//
// It is pure. It has no socket, no goroutine, no channel, no lock and no code of a user; time
// and randomness come from a Port. A transition is a call, made under the lock of the
// name's shard, with an Effects that takes what is to be done once the lock is given up.
// What must happen under the lock, and neither blocks nor calls back, goes through a port:
// timers, subscriptions, places among the renewals, counters.
//
// The engine owns what is not pure. Its acquisitions, holds, waits and debts embed the
// machine's, and are their ports.
//
//	event                            under the shard's lock          after it
//	Lock, Unlock, Extend, cancel  -> Admit, Unlock, Extend, Cancel -> Effects, in this order:
//	reply                         -> Resource.Replied                 1. contexts that ended
//	timer                         -> Fired, Rang, PauseOver           2. the next command
//	channel                       -> Wait.Heard                       3. verdicts
//	renewal                       -> Hold.Renewed, Gone               4. hooks and the log
package machine
