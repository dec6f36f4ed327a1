package recovery

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/script"
)

// AgainAfter is the pause of past releases that the server has refused for now.
const AgainAfter = 100 * time.Millisecond

// meaning is what an answer to a release that was sent once more calls for.
type meaning struct {
	works   bool          // the lane does
	refused bool          // the lane did not take it
	again   bool          // it is to be sent once more,
	pause   time.Duration // not before
	effect  bool          // the server had it still, and may be replaced, too
}

// meaningOf reads an answer. closed: it says that the client is.
func meaningOf(v lock.Result, closed bool, code int64) meaning {
	switch {
	case closed:
		return meaning{}
	case !v.Answered():
		return meaning{refused: !v.Sent(), again: true}
	case v == lock.RetryLater:
		return meaning{works: true, again: true, pause: AgainAfter}
	default:
		return meaning{works: true, effect: v == lock.Replied && code != script.NotThere}
	}
}
