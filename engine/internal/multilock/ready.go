package multilock

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// Ready is what a transition leaves to be done once the lock is given up: one thing, and what
// that needs.
type Ready struct {
	Do      Action
	At      int           // Wait, Fail: the lock
	Why     error         // Fail: the reason
	Count   int           // Try: of how many locks. Decide: for how many there will be work at most
	Patient bool          // Try, Wait: a full lane is waited for
	For     time.Duration // Pause
}

// Action is a kind of step.
type Action uint8

// The actions.
const (
	// Nothing: a result is awaited, or somebody else goes on.
	Nothing Action = iota
	// CheckServers whether the server of a lock that is not held is away; then ServersChecked.
	CheckServers
	// Try each lock that is not held, once. Their results come to OnResult.
	Try
	// Wait for one lock. Its result comes to OnResult.
	Wait
	// Decide, on a goroutine if there is much work.
	Decide
	// GiveBack all that are held; then GivenBack.
	GiveBack
	// Pause: let the engines hear of it, and call PauseOver after a time.
	Pause
	// Bind the holds together; then Bound or Lost.
	Bind
	// CancelTries: cancel what is asked for. The results still come to OnResult.
	CancelTries
	// Fail: give back all that are held, and tell the caller. It is over.
	Fail
)

// View is what an acquisition of many is up to.
type View struct {
	Stage  Stage
	Out    int             // results that are awaited
	Stop   *lockerr.Cancel // nil: it is not given up
	Last   Refusal         // the latest that decided
	Rounds int             // that ended with a refusal
	Late   int             // that ended with a grant that had ended, or came too late
}

// View returns what it is up to.
func (g *Acquisition) View() View {
	return View{g.stage, g.out, g.stop, g.last, g.rounds, g.late}
}
