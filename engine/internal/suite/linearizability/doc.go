// Package linearizability is the internal/suite of long, drawn histories: several engines, a few names, and
// a network and servers that misbehave all the time. What every history must keep is
// checked afterwards, by a model of a mutex. It needs a redis-server (see
// internal/redistest). PAWL_HISTORY is how long each one takes, PAWL_HISTORY_SEED the seed:
//
//	PAWL_HISTORY=2m PAWL_HISTORY_SEED=1 go test -v ./engine/internal/suite/linearizability
//
// Most histories are of engines of one process on one server (see history). TestProcesses has four
// processes, which are killed, stopped and cut off, on a primary with replicas, one of which sentinels
// promote in the middle (see fleet). They tell the test what they do line by line, by a clock that they share.
package linearizability
