package engine

import (
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/drive"
	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/invariants"
	"github.com/pawl-lock/pawl/resp"
)

// releaseAgain is a release that was answered by a server which has been replaced since,
// on its way to the successor. Whatever has happened to the name meanwhile, it is harmless:
// an owner is used for one grant, and this one has been given back. So it need not queue
// with the other commands of its name; recovery paces it.
type releaseAgain struct {
	pastRelease
	lane    *recoveryLane
	server  resp.ServerID // of the successor
	route   uint64
	rest    time.Duration // of its MinHold
	refused atomic.Bool   // by the lane
}

// send sends r once more. It reports whether the lane took it; else recovery has it again.
func (r *pastRelease) send(l *recoveryLane) bool {
	e := l.recovery.eng
	a := &releaseAgain{pastRelease: *r, lane: l, route: e.table.Client.Route(r.name)}
	a.server = e.released.serverOf(a.route)
	if r.end != 0 {
		a.rest = r.end.Sub(e.clock.Now())
	}
	e.table.Client.Submit(a.route, a)
	return !a.refused.Load()
}

// AppendCommand implements resp.Request.
func (a *releaseAgain) AppendCommand(dst []byte, form resp.Form) []byte {
	e := a.lane.recovery.eng
	return e.table.AppendRelease(dst, form, a.kind, a.name, a.id, a.rest)
}

// Rank implements resp.PatientRequest.
func (a *releaseAgain) Rank() resp.Rank { return resp.Sooner }

// Wanted implements resp.PatientRequest.
func (a *releaseAgain) Wanted() bool { return true }

// Complete implements resp.Request.
func (a *releaseAgain) Complete(reply resp.Reply) {
	defer invariants.FailStop()
	v := a.lane.recovery
	now := v.eng.clock.Now()
	works := true
	_, cause := resp.Outcome(reply.Err)
	switch o := drive.Classify(reply.Err); {
	case cause == resp.ErrClosed:
		works = false
	case !o.Sent() || o == machine.Unknown:
		a.refused.Store(!o.Sent())
		works = false
		v.addReleases([]pastRelease{a.pastRelease}, now)
	case o == machine.Busy:
		v.addReleases([]pastRelease{a.pastRelease}, now.Add(againAfter))
	case o == machine.Answered && reply.Value.Int != script.NotThere:
		a.at = now
		v.eng.released.note(a.server, a.route, a.pastRelease) // this one may be replaced, too
	}
	v.answered(a.lane, works)
}
