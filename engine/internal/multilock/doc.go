// Package multilock decides about several locks that are taken as one, all or none: which locks are
// tried, which refusal counts, which lock the call waits for and for how long, when the rest is given
// back, and what the error says. Package lock decides about each lock.
//
// It is pure, like package lock. It has no socket, no goroutine, no channel, no lock, no clock and no
// code of a user; a Port draws lots. An event is a call, made under the lock of the acquisition.
// It returns a Ready, which the caller takes after the lock, and most of which it reports with another
// call:
//
//	what happens                    is called       and leaves one of
//	it begins                       Start           CheckServers, Try
//	a look at the servers           ServersChecked  Try, GiveBack
//	a result                        OnResult        Nothing, Decide
//	Decide                          Decide          CheckServers, Bind, GiveBack, Fail
//	all were given back             GivenBack       Pause, Fail
//	the pause is over               PauseOver       Wait, Nothing
//	the holds are bound together    Bound           nothing
//	one of them had ended           Lost            GiveBack, Fail
//	context, Wait, Abandon, Close   Cancel          CancelTries, Fail, Nothing
//
// The engine owns the impure parts: the lock, the timers, the acquisitions and the holds,
// goroutines for long steps, and the error that the caller sees. See engine/multilock_acquire.go.
//
// Start reading with Acquisition, which has the states and the invariants.
package multilock
