package gathering

import (
	"slices"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/reason"
)

// worst returns the lock whose failure decides, -1 if none has failed: one that will not go
// away; else, for who goes on, one whose server is away, because to wait for another means to
// keep that until the server is given up, again and again; else one that somebody has, else
// the first.
func (g *Gathering) worst() int {
	first, best := -1, 0
	goesOn := !g.once && g.stop == nil
	for i, why := range g.why {
		if why == nil {
			continue
		}
		if !reason.Passes(why) {
			return i
		}
		rank := 1
		if _, held := why.(*reason.Held); held { // and nothing else went wrong
			rank = 2
		}
		if goesOn && slices.Contains(reason.Of(why), reason.ErrUnavailable) {
			rank = 3
		}
		if rank > best {
			first, best = i, rank
		}
	}
	return first
}

// refused goes on after a round in which a lock was refused: without the others.
func (g *Gathering) refused(i int) Step {
	now, before := Refusal{i, g.why[i]}, g.last
	g.last = now
	first := reason.Of(now.Why)[0]
	tooLate := first == reason.ErrLate
	if tooLate {
		g.late++
		tooLate = g.late >= machine.MaxLate || g.stage == Blocked // one that waits has counted itself
	}
	stopped := g.stop != nil
	switch {
	case stopped && before.Why != nil && reason.CutOff(now.Why): // what was known before stands
		return g.fail(g.stoppedAt(before))
	case g.once || !reason.Passes(now.Why) || tooLate && !stopped:
		return g.fail(now)
	case stopped && reason.IsObstacle(first): // told before the end, which another was told
		return g.fail(g.stoppedAt(now))
	case stopped:
		return g.fail(now)
	}
	return g.giveBack()
}

// stoppedAt is the refusal of a gathering that was given up between two rounds: what ended
// it, and what the latest round was told.
func (g *Gathering) stoppedAt(latest Refusal) Refusal {
	if g.stop.Cause == reason.ErrClosed {
		return Refusal{latest.At, reason.ErrClosed}
	}
	is := append([]error{g.stop.Cause}, reason.Of(latest.Why)...)
	return Refusal{latest.At, reason.Because(is...)}
}
