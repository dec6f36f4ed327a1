package engine

import (
	"math"

	"github.com/pawl-lock/pawl/internal/clock"
)

// vote is a hold of one of the servers.
type vote struct {
	quorum *quorum
	at     int
	hold   *Hold
	maxEnd clock.Instant
	joined clock.Instant // 0: when the whole was held, or soon after that
	why    error         // it ended before it was noted
}

// bind makes a vote of a hold, or returns why it is none any more.
func (q *quorum) bind(i int, l *Hold) (*vote, error) {
	v := &vote{quorum: q, at: i, hold: l}
	if why := l.h.bind(v); why != nil {
		return nil, endedBefore(q.locks[i].name, why)
	}
	l.h.Shard.Lock()
	v.maxEnd = l.h.MaxEnd()
	l.h.Shard.Unlock()
	return v, nil
}

// End implements machine.Context: the hold of the vote has ended.
func (v *vote) End(why error) {
	h := v.hold.h
	h.Shard.Lock()
	there := h.There()
	h.Shard.Unlock()
	var do deeds
	q := v.quorum
	q.mu.Lock()
	q.leave(v, why, there, &do)
	ending := q.ending
	q.mu.Unlock()
	defer do.run(q) // even if a context of the user's panics
	if ending != nil {
		q.fate.End(ending) // or waits for it
	}
}

// leave goes on without a vote, which its server had at that time still. The caller holds mu.
//
// The whole is lost when no majority is left. A server that lost the lock is asked again, and
// counts again from then on: nobody else can have a majority as long as, at every moment, a
// majority of the servers has it. But it does not count for the time before. A hold that went
// missing was there when its last renewal was sent, and may be missing since then; so votes
// that joined later do not replace it:
//
//	all five servers        are emptied
//	renewal of 1            gone; asked again, granted
//	renewal of 2            gone; asked again, granted
//	renewal of 3            gone: only 4 and 5 may have had it since: lost
//
// So that a vote that joins counts soon, the others are looked at when it does.
func (q *quorum) leave(v *vote, why error, there clock.Instant, do *deeds) {
	p := &q.parts[v.at]
	if p.vote != v {
		v.why = why // not noted yet, or given back
		return
	}
	p.vote, p.lost = nil, why
	reason := LostReason(0)
	if lost, ok := why.(*LostError); ok {
		reason = lost.Reason
	}
	switch {
	case q.stage < quorumHeld:
		p.parent = nil
		p.err = endedBefore(q.locks[v.at].name, why)
		q.next(do)
	case q.stage == quorumHeld:
		gone := reason == GoneOnServer || reason == TakenOnServer
		all, since := 0, clock.Instant(math.MaxInt64) // it was there until now
		switch {
		case gone || reason == NotRenewed:
			since = max(there, q.since)
		case reason == LeaseEnded: // perhaps noticed late
			since = max(v.hold.h.Until(), q.since)
		}
		for i := range q.parts {
			if other := q.parts[i].vote; other != nil && other.joined <= since {
				all++
			}
		}
		if gone {
			q.lookAtOthers(v.at, do)
		}
		if all < q.majority() {
			q.stage, q.ending = quorumOver, q.loss(why, since)
			q.giveUp(do)
			if reason != 0 && reason != EngineClosed {
				do.lost = q.ending
			}
		} else if p.parent == nil && (reason == GoneOnServer || reason == NotRenewed || q.outlives(reason)) {
			q.ask(v.at, true, do)
		}
	}
}

// outlives reports whether an Extend, which this vote missed, has the whole go on. The caller
// holds mu.
func (q *quorum) outlives(reason LostReason) bool {
	return reason == LeaseEnded && q.home.clock.Now() < q.last
}

// lookAtOthers has the other servers asked whether they have it.
func (q *quorum) lookAtOthers(than int, do *deeds) {
	for i := range q.parts {
		if v := q.parts[i].vote; v != nil && i != than {
			do.lookAt = append(do.lookAt, v)
		}
	}
}

// endBy has a hold that joins others end with them.
func (h *holding) endBy(at clock.Instant) {
	h.Shard.Lock()
	defer h.Shard.Unlock()
	h.EndBy(at)
}
