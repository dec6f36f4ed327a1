// Package lock decides about one lock name in this process: which command is sent next, which
// request gets the lock, when a hold ends, and which owners are given back.
//
// A Grant is the grant of the server to this process: one owner, its lease, its renewals. A Hold is
// what a caller has of it. A grant has one hold and its re-entries at a time. When that hold is
// unlocked, the grant may be handed over to the next waiter without a command. Otherwise it is
// released, in one script call with the acquire of the next waiter if that is known.
//
// It is pure. It has no socket, no goroutine, no channel, no lock and no code of a user; time
// and randomness come from a Port. A transition is a call, made under the lock of the
// name's shard, with a Ready that collects the actions for the time after the lock. Actions
// that must happen under the lock, and neither block nor call back, go through a port:
// timers, subscriptions, places among the renewals, counters, and the queue of the Observer and
// log lines.
//
// Packages driver and engine own the impure parts. Their requests, holds, waits and compensations embed
// the core's, and are their ports.
//
// Events, and the methods that are called for them under the shard's lock:
//
//	Lock, Unlock, Extend, cancel  Admit, Unlock, Extend, Cancel
//	a reply                       Entry.Replied
//	a timer                       Fired, AlarmFired, PauseOver
//	the channel                   Subscribed, OnMessage, ConnectionLost, ChannelRefused
//	the channel of calls          CallsConfirmed, Called, CallsLost, CallsRefused
//	a renewal                     Renewal, Renewed, Gone
//	a hold is asked               Check
//	contexts have ended           Entry.ContextsEnded
//	a connection is back          Reconnected
//	Shutdown, Close               StopWaiting, EndHold, Drop
//
// Then, without the lock, the Ready, in this order: contexts of holds that ended; the next
// command, or recovery, which sends it later; results for callers.
//
// Start reading with Entry, which has the invariants, and its method next.
//
// # Layers
//
// From below: values; what there is; what happens to it; which command is next; the inputs, which use all
// of these. No file refers to one of a higher layer, but for the three that `make house` counts.
//
//	settings, outcome
//	port, shard, entry, request, hold, grant, command, compensation, subscription, ready
//	acquire, verdict, release, hold_end, extend, handover, queue, readers, contexts, last_attempt, send, reply, sleep
//	next
//	calls, events, inspect
package lock
