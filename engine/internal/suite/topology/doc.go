// Package topology is the internal/suite of deployments: the same service on every way to run a
// server, and what happens when slots move, nodes die and addresses are translated. It needs
// redis-server, and with valkey-server it holds there, too (see internal/redistest):
//
//	go test ./engine/internal/suite/topology
//
// Built without the race detector it has one more test, of 100,000 holds (.ci/norace).
package topology
