// Package loss is the internal/suite of locks that others remove or overwrite.
// It needs a redis-server (see internal/redistest).
package loss
