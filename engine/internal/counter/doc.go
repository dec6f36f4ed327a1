// Package counter decides about one count in this process, that of a semaphore or a latch: which
// operations are sent next, and which result each caller gets.
//
// A count has no owner and no lease. Its operations are deltas, so it is not harmless to repeat one,
// as it is with a lock (see package lock). Each command has a number, and the server keeps the
// number and the answers of the latest command: the mark (see counter.lua). A command without an answer
// is in doubt. It is sent again, with its number and its operations, until there is an answer; until
// then nothing else of the name is sent. After DoubtFor the command is given up, because the mark may
// soon be gone, and its callers get ErrOutcomeUnknown.
//
//	chosen --sent--> out --answered--> over
//	  ^               |
//	  |  not sent     | no answer
//	  +---------------+--------------> doubt --sent again--> out
//	                                     |
//	                                     +--after DoubtFor--> outcome unknown
//
// The package is pure, as package lock is: no socket, no goroutine, no lock and no code of a user.
// A transition is a call under the lock of the name's shard, with a Ready that collects the
// actions for the time after the transition.
//
// Events, and the methods that are called for them under the shard's lock:
//
//	Acquire, CountDown, ...; their end  Admit, Cancel
//	Release                             Permits.Release
//	a reply                             Replied
//	the timer                           Fired
//	the channel                         OnChannel, ChannelRefused
//	a connection is back                Reconnected
//	Shutdown, Close                     StopWaiting, End, Drop
//
// Start reading with Counter, which has the invariants, and choose.
package counter
