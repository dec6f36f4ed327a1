package multilock

import (
	"slices"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// worst returns the lock whose failure decides, -1 if none has failed: one that will not go
// away; else, for who goes on, one whose server is away, because to wait for another means to
// keep that until the server is given up, again and again; else one that somebody has, else
// the first. One that was given up before its answer came says least.
func (g *Acquisition) worst() int {
	first, best := -1, 0
	goesOn := !g.once && g.stop == nil
	for i, p := range g.parts {
		rank := 2
		_, held := p.why.(*lockerr.Held)
		switch {
		case p.why == nil:
			continue
		case !lockerr.MayPass(p.why):
			if !p.cut {
				return i
			}
			rank = 1
		case goesOn && slices.Contains(lockerr.Parts(p.why), lockerr.ErrUnavailable):
			rank = 4
		case held: // and nothing else went wrong
			rank = 3
		}
		if rank > best {
			first, best = i, rank
		}
	}
	return first
}

// refused goes on after a round in which a lock was refused: without the others.
func (g *Acquisition) refused(i int) Ready {
	now, before := Refusal{i, g.parts[i].why}, g.last
	g.last = now
	first := lockerr.Parts(now.Why)[0]
	tooLate := first == lockerr.ErrGrantTooLate
	if tooLate {
		g.late++
		tooLate = g.late >= lock.MaxLate || g.stage == Blocked // one that waits has counted itself
	}
	stopped, passes := g.stop != nil, lockerr.MayPass(now.Why)
	noAnswer := g.parts[i].cut && (!passes || lockerr.CutOff(now.Why))
	switch {
	case noAnswer && before.Why != nil: // what was known before stands
		return g.fail(g.stoppedAt(before))
	case g.once || !passes || tooLate && !stopped:
		return g.fail(now)
	case stopped && lockerr.IsBlocking(first): // told before the end, which another was told
		return g.fail(g.stoppedAt(now))
	case stopped:
		return g.fail(now)
	}
	return g.giveBack()
}

// stoppedAt is the refusal of an acquisition of many that was given up between two rounds: what ended
// it, and what the latest round was told.
func (g *Acquisition) stoppedAt(latest Refusal) Refusal {
	if g.stop.Cause == lockerr.ErrClosed {
		return Refusal{latest.At, lockerr.ErrClosed}
	}
	return Refusal{latest.At, g.stop.Err(lockerr.Parts(latest.Why)...)}
}
