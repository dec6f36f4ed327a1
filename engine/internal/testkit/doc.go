// Package testkit is what the suites (engine/internal/suite) share: servers, faults, engines and the
// patience to wait for them. An internal/suite uses an engine as a user does. It looks at it from the
// server's side, from the wire, or through the world that the engine was given (see Open),
// never into its parts. Only tests import this package. It decides nothing about locks, and
// has no test of its own: the suites are that.
package testkit

import "go.uber.org/goleak"

// Endless are the goroutines that no test has to end.
func Endless() []goleak.Option {
	return []goleak.Option{
		// gnet's worker pool starts these two when it is imported; they never end.
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"),
	}
}
