package quorum

import (
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/clock"
)

// Ready is what a transition leaves to be done: the timer under the lock of the caller, and the rest once that is
// released, in this order.
type Ready struct {
	Timer bool // Machine.Due has changed

	Lost error // to be logged
	Give []*Vote
	// Withdraw: when these are given back GivenBack is called.
	Withdraw bool
	Cancel   []Try
	Why      lockerr.Cancel // of these
	Won      bool           // it is held,
	Failed   error          // or was not acquired: the caller is told
	Join     *Vote          // ends with the others,
	Last     clock.Instant
	LookAt   []*Vote // are renewed at once: the answers tell whether they are there
	Ask      []Request
	List     bool // with the engines, which may close
}

// Request is a try that is to begin.
type Request struct {
	Member int
	Try    Try
}
