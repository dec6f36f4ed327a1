// Package pawlotel traces the locks of an engine with OpenTelemetry:
//
//	cfg.Observer = pawlotel.New()
//
// An acquisition has up to three spans, all children of the span that called Lock or Do:
//
//	lock.acquire  from the call to the result
//	lock.hold     from the grant to the end. Spans that are started under the context of Do, or of
//	              Hold.Context(nil), are its children
//	lock.release  from the end until Unlock has its answer
//
// An acquisition whose lock.acquire is not sampled has none of the others either, and leaves the context as it is.
//
// The names of the attributes begin with "lock.". All spans have kind and name.
//
//	lock.acquire  outcome, attempts, owner, token, permits, handed_over, reentry, holder (who had the
//	              lock when it was refused), part_of (see Parts)
//	lock.hold     wait_ms, owner, lost (why)
//
// A lock that is lost, or that is not granted because of a failure, has a span with the status Error, and so has an
// Unlock that failed. A lock that somebody else held, or for which the caller did not wait long enough, has not.
//
// The parts of Multi, LockMany and RedLock have no spans of their own unless Parts is given.
package pawlotel
