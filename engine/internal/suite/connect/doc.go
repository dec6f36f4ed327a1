// Package connect is the internal/suite of opening an engine: servers that are not there, load, or
// refuse the password.
// It needs a redis-server (see internal/redistest).
package connect
