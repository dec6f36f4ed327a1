// Package futures is the internal/suite of futures of operations: results, ended contexts, Abandon and
// Close.
// It needs a redis-server (see internal/redistest).
package futures
