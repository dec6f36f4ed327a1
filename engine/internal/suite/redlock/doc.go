// Package redlock is the internal/suite of RedLock on several servers: majorities, faults, contenders,
// re-entries.
// It needs a redis-server (see internal/redistest).
package redlock
