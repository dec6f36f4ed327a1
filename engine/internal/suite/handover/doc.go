// Package handover is the internal/suite of locks that are handed over inside a process, and of
// what is not handed over.
// It needs a redis-server (see internal/redistest).
package handover
