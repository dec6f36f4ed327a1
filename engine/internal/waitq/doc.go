// Package waitq keeps the order of what comes and goes: waiters in a FIFO that any of them may leave
// ([List]), verdicts on their way to callers ([Chain]), the contexts of a hold ([Set]).
//
// All are plain data: no clock, no lock, no socket, no goroutine.
package waitq
