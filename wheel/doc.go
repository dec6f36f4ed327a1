// Package wheel is the timing wheel: a safe wrapper of RussellLuo/timingwheel. It owns the
// timers of an engine, and knows nothing of locks and connections. Schedule and Cancel may be
// called under any lock.
//
// Timers are intrusive and cost no allocation. All timers that fall due in one tick share
// one timer of the library. See Wheel for the way of a timer.
//
// The near ring is the wheel's own, turned by one runtime timer, and exact to 0.6 ms. A timer
// gets there before it is due, whatever the library does. So short leases need no timers of
// another kind, and the engine no special case for them. The library only sees timers that are
// far away.
//
// What the library does wrong, and what stands against it:
//
//	it dead-locks for good            only the era's driver calls it, and hangs alone
//	it does not fire, or late         the watcher empties slots that are overdue
//	it fires early, or twice, or      a slot is emptied only if it is near
//	    after it was replaced
//	it does not recover               its canary does not come in time: it is replaced
//	it follows the wall clock         it is replaced when that steps
//	it does not stop                  Close leaves it behind after a second
//	two timers a revolution apart     its wheel is far longer than any delay that it
//	    dead-lock it                  is given
//
// A lock per shard did not help: with one, arming takes about as long as reading the clock.
package wheel
