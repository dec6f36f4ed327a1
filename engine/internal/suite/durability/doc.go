// Package durability is the internal/suite of locks that replicas acknowledge: what a grant says, what
// silent replicas cost, and how many holders a lock has when its primary is replaced. It
// needs a redis-server (see internal/redistest). PAWL_FAILOVERS is how many failovers on
// command there are:
//
//	PAWL_FAILOVERS=20 go test ./engine/internal/suite/durability -run TestFailoversOnCommand -timeout 60m -v
package durability
