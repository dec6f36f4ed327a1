// Package memory is the internal/suite of what waiting and holding cost: allocations, bytes and
// goroutines.
// It needs a redis-server (see internal/redistest).
package memory
