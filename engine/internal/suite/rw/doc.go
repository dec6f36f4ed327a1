// Package rw is the internal/suite of RWMutex: readers, writers, Downgrade.
// It needs a redis-server (see internal/redistest).
package rw
