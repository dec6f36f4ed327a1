// Package reentry is the internal/suite of leases of re-entries.
// It needs a redis-server (see internal/redistest).
package reentry
