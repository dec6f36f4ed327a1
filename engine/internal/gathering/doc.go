// Package gathering is what decides when many locks are taken as one, all of them or none:
// which are asked for, which refusal counts, what is waited for and for how long, when the
// rest is given back, and what the error says in the end. What becomes of each lock is
// decided by engine/internal/machine.
//
// It is pure, as that is. It has no socket, no goroutine, no channel, no lock, no clock and no
// code of a user; a Port draws lots. An event is a call, made under the lock of the gathering.
// It returns a Step, which is done once the lock is given up, and most of which are reported
// with another call:
//
//	what happens                    is called    and leaves one of
//	it begins                       Start        Look, Try
//	a look at the servers           Looked       Try, GiveBack
//	a result                        Told         Nothing, Decide
//	Decide                          Decide       Look, Bind, GiveBack, Fail
//	all were given back             GivenBack    Pause, Fail
//	the pause is over               PauseOver    Wait, Nothing
//	the holds are bound together    Bound        nothing
//	one of them had ended           Lost         GiveBack, Fail
//	context, Wait, Abandon, Close   Cancel       Withdraw, Fail, Nothing
//
// The engine owns what is not pure: the lock, the timers, the acquisitions and the holds,
// goroutines for long steps, and the error that the caller sees. See engine/gathering.go.
//
// Start reading with Gathering, which has the states and the invariants.
package gathering
