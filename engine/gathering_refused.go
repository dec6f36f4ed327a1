package engine

import (
	"slices"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/reason"
)

// worst returns the lock whose failure decides, -1 if none has failed: one that will not go
// away; else, for who goes on, one whose server is away, because to wait for another means to
// keep that until the server is given up, again and again; else one that somebody has, else
// the first. The caller holds mu.
func (g *gathering) worst() int {
	first, best := -1, 0
	goesOn := !g.once && g.stop == nil
	for i := range g.parts {
		err := g.parts[i].err
		if err == nil {
			continue
		}
		if !passes(err) {
			return i
		}
		rank := 1
		switch e := err.(*NotAcquiredError); {
		case goesOn && slices.Contains(reason.Of(e.Err), ErrUnavailable):
			rank = 3
		case e.refused():
			rank = 2
		}
		if rank > best {
			first, best = i, rank
		}
	}
	return first
}

// refusedBy goes on after a round in which a lock was refused: without the others.
func (g *gathering) refusedBy(i int) {
	g.mu.Lock()
	err, before := g.parts[i].err, g.refusal
	g.refused, g.refusal = i, err
	stopped := g.stop != nil
	reasons := reason.Of(err.(*NotAcquiredError).Err)
	tooLate := reasons[0] == ErrLate
	if tooLate {
		g.late++
		tooLate = g.late >= machine.MaxLate || g.stage == stageBlocked // one that waits has counted itself
	}
	g.mu.Unlock()
	switch {
	case stopped && before != nil && reason.CutOff(err.(*NotAcquiredError).Err): // what was known before stands
		g.fail(g.stoppedAt(before))
		return
	case g.once || !passes(err) || tooLate && !stopped:
		g.fail(err)
		return
	case stopped && reason.IsObstacle(reasons[0]): // told before the end, which another was told
		g.fail(g.stoppedAt(err))
		return
	case stopped:
		g.fail(err)
		return
	}
	g.giveBack()
	g.rest()
}

// away returns a lock that is not held yet and whose server has no connection, -1 if there
// is none.
func (g *gathering) away() int {
	for i, m := range g.locks {
		if g.parts[i].hold == nil && !m.engine().table.Client.LaneOf(m.route).Up() {
			return i
		}
	}
	return -1
}

// stoppedAt is the error of a gathering that was given up between two rounds: what ended
// it, and what the latest round was told.
func (g *gathering) stoppedAt(refusal error) error {
	g.mu.Lock()
	s := *g.stop
	g.mu.Unlock()
	last := refusal.(*NotAcquiredError)
	if s.Cause == ErrClosed {
		return notAcquired(last.Name, ErrClosed)
	}
	return notAcquired(last.Name, reason.Because(append([]error{s.Cause}, reason.Of(last.Err)...)...))
}
