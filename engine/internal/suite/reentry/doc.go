// Package reentry is the internal/suite of re-entries: under which contexts a Lock is one, and what leases they have.
// It needs a redis-server (see internal/redistest).
package reentry
