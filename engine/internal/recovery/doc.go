// Package recovery continues after an outage. It resumes names that stalled because their lane was
// down, and sends releases again to the successor of the server that answered them. It owns the order
// and the pace of commands on such a lane, and the memory of past releases. The core decides what a
// name sends; package driver, known here as a [Port], has the locks and encodes the releases.
//
// It holds no lock while it sends, calls the engine, or resumes a name. It never blocks,
// starts no goroutine and runs no code of a user: its callers are event loops and timers.
//
// # Files
//
// These decide, are pure, and have a table of tests each: backlog.go (which stalled names wait for a
// lane, and which is next), ring.go (how past releases age, and which are due), reply.go (what a reply
// means). These drive them: recovery.go (the lanes), releaselog.go (what servers have released), resend.go (a
// release on its way to the successor).
//
// # Locks
//
//	a shard's lock, then Recovery.mu, then the wheel's
//	a shard's lock, then releaseLog.mu, then the wheel's
//
// Recovery.mu and releaseLog.mu are not held together. Client.LaneOf and Client.ServerOf, which
// take no lock, are called under them, and under releaseLog.mu Lane.Up, which takes that of its link.
package recovery
