// Package front is the internal/suite of engines that wait for one Mutex or FencedMutex: they queue at the
// server, and the first of them, the front, listen for releases and race. It shows that a hand-over costs the
// same however many wait, and that no waiter is lost, whatever becomes of the engines in the front, of the
// queue, and of the servers.
// It needs a redis-server (see internal/redistest).
package front
