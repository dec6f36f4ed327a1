// Package faults is the internal/suite of what goes wrong on the way to a server, and there: replies
// that are lost, commands that arrive late, connections that hang, servers that refuse or are
// away for hours, and locks that somebody removes. It needs a redis-server (see
// internal/redistest):
//
//	go test ./engine/internal/suite/faults
package faults
