// Package callbacks is the internal/suite of what an engine calls: callbacks of futures, the Observer, the
// logger, causes and contexts of the user. None of them is called on an event loop or under a lock.
// It needs a redis-server (see internal/redistest).
package callbacks
