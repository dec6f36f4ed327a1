// Package lease is the internal/suite of leases: the watchdog, Lease, MaxHold, MinHold, Extend, and
// an Unlock whose answer does not come.
// It needs a redis-server (see internal/redistest).
package lease
