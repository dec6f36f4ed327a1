// Package linearizability is the internal/suite of long, drawn histories: several engines, a few names, and
// a network and a server that misbehave all the time. What every history must keep is
// checked afterwards, by a model of a mutex. It needs a redis-server (see
// internal/redistest). PAWL_HISTORY is how long each one takes, PAWL_HISTORY_SEED the seed:
//
//	PAWL_HISTORY=2m PAWL_HISTORY_SEED=1 go test -v ./engine/internal/suite/linearizability
package linearizability
