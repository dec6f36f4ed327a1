// Package wheel is the timing wheel: a safe wrapper of RussellLuo/timingwheel.
//
// Timers are intrusive and cost no allocation; all that fall due in one tick
// share one timer of the library. See Wheel for what the wrapper guards against.
package wheel
