// Package waitq holds what the waiters of one lock name share inside this process: their
// FIFO order ([List]), and the wait of the one at its head ([HeadWait]). A [Set] keeps the order of
// things that come and go, such as the contexts of a hold.
//
// All are plain data: no clock, no lock, no socket, no goroutine. The caller has a lock,
// and does what it is told.
//
// A wake-up must not be lost. A message may be read before the refusal that it follows; then
// nobody is asleep yet. So a HeadWait has a generation, and a refusal sleeps only if no event
// came since its try was sent. A test checks this against every sequence of eight events.
package waitq
