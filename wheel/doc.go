// Package wheel is the timing wheel: a safe wrapper of RussellLuo/timingwheel. It owns the
// timers of an engine, and knows nothing of locks and connections. Schedule and Cancel may be
// called under any lock.
//
// Timers are intrusive and cost no allocation. All timers that fall due in one tick share
// one timer of the library. See Wheel for the way of a timer, and for the faults of the
// library that the wrapper guards against.
//
// The near ring is the wheel's own, turned by one runtime timer, and exact to 0.6 ms. So
// short leases need no timers of another kind, and the engine no special case for them. The
// library only sees timers that are far away.
//
// A lock per shard did not help: with one, arming takes about as long as reading the clock.
package wheel
