// Package wheel is the timing wheel: a safe wrapper of RussellLuo/timingwheel.
//
// Timers are intrusive and cost no allocation. All timers that fall due in one tick share
// one timer of the library. See Wheel for the faults of the library that the wrapper
// guards against.
package wheel
