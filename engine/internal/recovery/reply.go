package recovery

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/script"
)

// ResendAfter is the pause of past releases that the server has refused for now.
const ResendAfter = 100 * time.Millisecond

// decision is what an answer to a release that was sent once more calls for.
type decision struct {
	works   bool          // the lane does
	refused bool          // the lane did not take it
	resend  bool          // it is to be sent once more,
	pause   time.Duration // not before
	effect  bool          // the server had it still, and may be replaced, too
}

// decide reads an answer. closed: it says that the client is.
func decide(v lock.Result, closed bool, code int64) decision {
	switch {
	case closed:
		return decision{}
	case !v.Answered():
		return decision{refused: !v.Sent(), resend: true}
	case v == lock.RetryLater:
		return decision{works: true, resend: true, pause: ResendAfter}
	default:
		return decision{works: true, effect: v == lock.Replied && code != script.NotThere}
	}
}
