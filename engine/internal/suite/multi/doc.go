// Package multi is the internal/suite of one lock on several servers and of several locks at once, as
// several engines and processes use them: MultiLock, LockMany and RedLock. It needs a
// redis-server (see internal/redistest). PAWL_MULTI_ROUNDS and PAWL_REDLOCK_SECTIONS make the
// tests of processes longer, PAWL_MULTI_SEED and PAWL_REDLOCK_SEED are seeds:
//
//	PAWL_MULTI_ROUNDS=10000 go test ./engine/internal/suite/multi -run TestProcesses -timeout 60m -v
//	PAWL_REDLOCK_SECTIONS=10000 go test ./engine/internal/suite/multi -run TestRedLockIsSafe -timeout 60m -v
package multi
