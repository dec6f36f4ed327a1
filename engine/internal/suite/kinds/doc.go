// Package kinds is the internal/suite of one name that is used for locks of several kinds.
// It needs a redis-server (see internal/redistest).
package kinds
