// Package lock decides about one lock name in this process: which command is sent next, which
// request gets the lock, when a hold ends, and which owners are given back.
//
// A Grant is the grant of the server to this process: one owner, its lease, its renewals. A Hold is
// what a caller has of it. A grant has one hold and its re-entries at a time. When that hold is
// unlocked, the grant may be handed over to the next waiter without a command. Otherwise it is
// released, in one script call with the acquire of the next waiter if that is known.
//
// It is pure. It has no socket, no goroutine, no channel, no lock and no code of a user; time,
// randomness and the state of a lane come from a Port. A transition is a call, made under the lock of the
// name's shard. What it leaves to be done is data, in two lists that the driver works through in order:
//
//  1. the Effects of the shard, before the driver gives the lock back: timers, subscriptions, places among
//     the renewals, verdicts. None of them blocks or calls back;
//  2. a Ready, after that: contexts of holds that ended; the next command, or recovery, which sends it later;
//     callers, who are told.
//
// Packages driver and engine own the impure parts. Their requests, holds and subscriptions embed
// the core's, which know them as their Handle.
//
// Events, and the methods that are called for them under the shard's lock:
//
//	Lock, Unlock, Extend, cancel  Admit, Unlock, Extend, Cancel
//	a reply                       Entry.Replied
//	a timer                       Fired, AlarmFired, PauseOver
//	the channel                   OnChannel, ChannelRefused
//	the channel of calls          CallsConfirmed, Called, CallsLost, CallsRefused
//	a renewal                     Renewal, Renewed, Gone
//	a hold is asked               Check
//	contexts have ended           Entry.ContextsEnded
//	a connection is back          Reconnected
//	Shutdown, Close               StopWaiting, EndHold, Drop
//
// Start reading with Entry, which has the invariants, and its method next.
//
// # Layers
//
// From below: values; what there is; what happens to it; which command is next; the inputs, which use all
// of these. No file refers to one of a higher layer, but for the three that `make house` counts.
//
//	settings, outcome
//	effect, shard, entry, request, hold, grant, command, compensation, subscription, ready
//	acquire, verdict, release, hold_end, extend, handover, queue, readers, contexts, last_attempt, send, reply, sleep
//	next
//	calls, events, inspect
package lock
