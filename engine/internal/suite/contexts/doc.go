// Package contexts is the internal/suite of contexts of holds. They end before the release is sent, and
// a context that blocks or panics keeps no lock.
// It needs a redis-server (see internal/redistest).
package contexts
