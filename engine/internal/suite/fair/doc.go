// Package fair is the internal/suite of FairMutex: the order of arrival, and waiters that leave or
// die in the queue.
// It needs a redis-server (see internal/redistest).
package fair
