package recovery

import (
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/internal/invariants"
	"github.com/pawl-lock/pawl/resp"
)

// resentRelease is a release that was answered by a server which has been replaced since,
// on its way to the successor. Whatever has happened to the name meanwhile, it is harmless:
// an owner is used for one grant, and this one has been given back. So it need not queue
// with the other commands of its name; its lane's backlog paces it.
type resentRelease struct {
	Release
	lane    *lane
	server  resp.ServerID // of the successor
	route   uint64
	left    time.Duration // of its MinHold
	refused atomic.Bool   // by the lane
}

// send sends r once more. It reports whether the lane took it; else recovery has it again.
func (l *lane) send(r *Release) bool {
	v := l.recovery
	a := &resentRelease{Release: *r, lane: l, route: v.cfg.Client.Route(r.Name)}
	a.server = v.ServerOf(a.route)
	if r.End != 0 {
		a.left = r.rest(v.cfg.Clock.Now())
	}
	v.cfg.Client.Submit(a.route, a)
	return !a.refused.Load()
}

// AppendCommand implements resp.Request.
func (a *resentRelease) AppendCommand(dst []byte, form resp.ScriptForm) []byte {
	return a.lane.recovery.cfg.Engine.AppendRelease(dst, form, &a.Release, a.left)
}

// Priority implements resp.PatientRequest.
func (a *resentRelease) Priority() resp.Priority { return resp.PriorityHigh }

// Wanted implements resp.PatientRequest.
func (a *resentRelease) Wanted() bool { return true }

// Complete implements resp.Request.
func (a *resentRelease) Complete(reply resp.Reply) {
	defer invariants.FailStop()
	v := a.lane.recovery
	now := v.cfg.Clock.Now()
	_, cause := resp.Outcome(reply.Err)
	m := decide(v.cfg.Engine.Result(reply.Err), cause == resp.ErrClosed, reply.Value.Int)
	a.refused.Store(m.refused)
	if m.resend {
		v.Resend([]Release{a.Release}, now.Add(m.pause))
	}
	if m.effect {
		a.At = now
		v.Note(a.server, a.route, a.Release)
	}
	v.answered(a.lane, m.works)
}
