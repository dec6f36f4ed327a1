// Package recovery goes on with what could not be sent: names that are stalled because their
// lane was down, when it works again; and releases that were answered by a server which has
// been replaced since, at its successor. It owns what is sent next on such a lane, how much of
// it at a time, and which releases are remembered for how long. What a name has to send is the
// machine's to decide; its locks, and how a release is written, are package drive's, which is
// known here as a [Port].
//
// It holds no lock while it sends, asks the engine, or goes on with a name. It never blocks,
// starts no goroutine and runs no code of a user: its callers are event loops and timers.
//
// # Files
//
// What decides is pure, with a table of tests for each: backlog.go (what waits for a lane, and
// what of it goes next), pages.go (past releases: how they age, and which are due), answer.go
// (what an answer means). What drives it: recovery.go (the lanes), memory.go (what servers have
// released), again.go (a release on its way to the successor).
//
// # Locks
//
//	a shard's lock, then Recovery.mu, then the wheel's
//	a shard's lock, then memory.mu, then the wheel's
//
// Recovery.mu and memory.mu are not held together. Client.LaneOf and Client.ServerOf, which
// take no lock, are asked under them.
package recovery
