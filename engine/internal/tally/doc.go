// Package tally is what decides about one count in this process, that of a semaphore or a
// latch: which operations are sent next, and who is told what.
//
// A count has no owner and no lease. Its operations are deltas, so a repeat is not harmless,
// as it is with a lock (see package machine). Each command has a number, and the server keeps
// the number and the answers of the latest one: the mark (see tally.lua). A command without an
// answer is in doubt. It is sent again, with its number and its operations, until there is an
// answer; nothing else of the name is sent meanwhile. When it is older than DoubtFor it is
// given up, because the mark may be gone soon, and its callers are told so.
//
//	chosen --sent--> out --answered--> over
//	  ^               |
//	  |  not sent     | no answer
//	  +---------------+--------------> doubt --sent again--> out
//	                                     |
//	                                     +--after DoubtFor--> outcome unknown
//
// The package is pure, as machine is: no socket, no goroutine, no lock and no code of a user.
// A transition is a call under the lock of the name's shard, with an Effects that takes what is
// to be done once the lock is given up. Timers and the subscription go through a Port.
//
// What happens, and what is called for it under the shard's lock:
//
//	Acquire, CountDown, ...; their end  Admit, Cancel
//	Release                             Permits.Release
//	a reply                             Replied
//	a timer                             Rang, PauseOver, DoubtOver
//	the channel                         Subscribed, Announced, Cut, Forbidden
//	a connection is back                Resume
//	Shutdown, Close                     StopWaiting, End, Drop
//
// Start reading with Tally, which has the invariants, and choose.
package tally
