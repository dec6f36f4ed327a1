// Package fenced is the internal/suite of FencedMutex: each hold has a higher token than the one before.
// It needs a redis-server (see internal/redistest).
package fenced
