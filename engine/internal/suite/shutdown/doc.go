// Package shutdown is the internal/suite of Close and Shutdown: what they end, wait for and report.
// It needs a redis-server (see internal/redistest).
package shutdown
