// Package inspect is the internal/suite of what engines say about locks: who holds one, who waits, since
// when, in several processes, of which some hang or are dead. It needs a redis-server (see internal/redistest).
package inspect
