// Package pawlotel traces the locks of an engine with OpenTelemetry:
//
//	cfg.Observer = pawlotel.New()
//
// An acquisition has up to three spans, all children of the caller's span:
//
//	lock.acquire  from the call to the result
//	lock.hold     from the grant to the end. Spans that are started under the context of Do, or of
//	              Hold.Context(nil), are its children
//	lock.release  from the end to the answer that Unlock waits for
//
// An acquisition whose lock.acquire is not sampled has none of the others either, and leaves the context as it is.
//
// The names of the attributes begin with "lock.": kind, name, outcome, attempts, handed_over, reentry,
// owner, token, permits, holder (who had the lock when it was refused), wait_ms and lost (why). A lock that is
// lost, or that is not granted because of a failure, has a span with the status Error; one that somebody
// else held, or for which the caller did not wait long enough, has not.
//
// Locks that are parts of a MultiLock or a QuorumLock have no spans of their own unless Parts is given.
package pawlotel
