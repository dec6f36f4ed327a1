// Package serial is what a name has that sends one command at a time, be it a lock, a semaphore or a
// latch: why it may send nothing now, how long it pauses after a refusal, and the wait of the first of those
// who wait for it in this process ([HeadWait]).
//
// All are plain data: no clock, no lock, no socket, no goroutine. The caller has a lock,
// and does what it is told.
//
// A wake-up must not be lost. A message may be read before the refusal that it follows; then
// nobody is asleep yet. So a HeadWait notes what comes while a try is out, and a refusal sleeps
// only if nothing came. A test checks this against every sequence of eight events.
package serial
