package engine

import (
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/reason"
)

// round asks all servers that have no vote and are not being asked. Some may need as long as took
// for an answer: it waits for that, and a quarter more, at least.
func (q *quorum) round(took time.Duration, do *deeds) {
	q.stage, q.armed = quorumAsking, false
	q.patience = min(took+took/4, q.home.cfg.CommandTimeout)
	for i := range q.parts {
		if p := &q.parts[i]; p.vote == nil && p.asked == nil {
			q.ask(i, false, do)
		}
	}
}

// decide ends a round that has no majority, if it cannot get one any more: as far as answers
// go, and what is known of the servers that have not answered, if that was looked at. If that takes
// too long, they do not count, unless nobody has refused. While nobody has in this round, that one
// held it before says nothing. The caller holds mu.
func (q *quorum) decide(stands []standing, tooLong bool, do *deeds) {
	votes, coming, slow, late := 0, 0, 0, 0
	referee, holder := -1, -1 // the first that is not away; the first that refused
	refused := slices.ContainsFunc(q.parts, func(p quorumPart) bool { return p.asked == nil && p.err != nil })
	for _, i := range q.order {
		p := &q.parts[i]
		stand := isOpen
		switch {
		case p.vote != nil:
			votes++
		case p.asked == nil && p.err != nil:
			if stand, _ = standingOf(p.err.(*NotAcquiredError).Err); stand == isOpen {
				stand = isAway // refused for good, or granted too late
			}
			if slices.Contains(reason.Of(p.err.(*NotAcquiredError).Err), ErrLate) {
				late++
			}
		case p.asked != nil && p.waits: // it was refused there before
			if stand = isHeld; stands != nil && stands[i] == isAway {
				stand = isAway
			}
		case stands != nil && (refused || tooLong || stands[i] == isAway):
			stand = stands[i]
		}
		if stand == isOpen && p.asked != nil {
			if p.slow = p.slow || tooLong; p.slow {
				slow++
				continue
			}
			coming++
		}
		if stand == isHeld && holder < 0 {
			holder = i
		}
		if referee < 0 && (p.vote != nil || p.asked != nil && stand == isOpen || stand == isHeld) {
			referee = i
		}
	}
	mine := referee >= 0 && q.parts[referee].vote != nil
	unknown := referee >= 0 && !mine && referee != holder // it has not answered
	switch {
	case holder < 0 && votes+coming+slow >= q.majority(), holder >= 0 && (unknown || !mine && votes+coming >= q.majority()):
		if (votes > 0 || holder >= 0) && !q.armed {
			q.arm(max(firstLook<<min(q.looks, maxLooks), q.patience), do)
			q.looks++
		}
		return
	case mine && holder >= 0 && q.tries < maxPauses:
		q.stage = quorumPausing
		q.arm(min(firstPause<<q.tries, mostPause), do)
		q.tries++
		return
	}
	q.failed++
	if late > len(q.parts)-q.majority() {
		if q.late++; q.late >= machine.MaxLate {
			q.fail(q.verdict(), do)
			return
		}
	}
	q.armed = false
	q.stage, q.tries, q.probes, q.probed = quorumBlocked, 0, 0, -1
	q.giveVotes(do)
	q.block(do)
}

// block waits at the first server that has refused, if there is one and it does not wait
// anywhere.
func (q *quorum) block(do *deeds) {
	if !q.armed {
		q.arm(longWait, do)
	}
	if q.waits() {
		return
	}
	for _, i := range q.order {
		if p := &q.parts[i]; p.asked == nil && p.err != nil {
			if stand, _ := standingOf(p.err.(*NotAcquiredError).Err); stand == isHeld {
				q.ask(i, true, do)
				return
			}
		}
	}
}

// resume goes on when it was blocked, and got a vote. The others are waited for as long as this
// vote took: if it was far, they may be, too. But not longer: a slow server may not be needed, and
// meanwhile somebody else needs the votes that are kept. The caller holds mu.
func (q *quorum) resume(i int, do *deeds) {
	p := &q.parts[i]
	took := q.locks[i].engine().clock.Stamp().Sub(p.since)
	switch {
	case p.waits:
		took = 0 // it waited for an owner
	case q.probed == i, !q.waits():
	case q.almost():
		q.again++
		took *= 2 // the others were given back: they are asked when that is answered
	default: // late: it is not wanted alone
		do.give, p.vote = append(do.give, p.vote), nil
		return
	}
	q.tries = 0
	q.round(took, do)
}

// almost reports whether a majority has granted it, though not within one round, as some are
// slow. Then another round is worth it, a few times. The caller holds mu.
func (q *quorum) almost() bool {
	granted := 0
	for i := range q.parts {
		if p := &q.parts[i]; p.vote != nil || p.asked == nil && p.err == nil { // given back
			granted++
		}
	}
	return granted >= q.majority() && q.again < maxAgain
}

// firstPause is with the referee's vote; it doubles.
const firstPause = time.Millisecond

// The times are up to twice as long.
const (
	firstLook = 4 * time.Millisecond // at a round that has no result; doubles
	maxLooks  = 5
	maxAgain  = 6                    // rounds after a probe, for what it nearly got
	mostPause = 8 * time.Millisecond // from firstPause on
	maxPauses = 12
	longWait  = 250 * time.Millisecond // until another server is asked
	maxProbes = 4                      // how often that doubles
)

func (q *quorum) arm(bound time.Duration, do *deeds) {
	q.armed, do.arm = true, bound+q.home.world.Draw(bound)
}

// tick goes on when the time of the stage is over.
func (q *quorum) tick() {
	q.mu.Lock()
	q.armed = false
	q.mu.Unlock()
	q.look(true)
}

// look goes on by what those say that have not answered.
func (q *quorum) look(tooLong bool) {
	q.mu.Lock()
	asked := make([]*acquisition, len(q.parts))
	for i := range q.parts {
		asked[i] = q.parts[i].asked
	}
	q.mu.Unlock()
	stands := make([]standing, len(asked))
	first := false
	for i, a := range asked {
		if a != nil {
			var front bool
			stands[i], front = a.standing()
			first = first || front
		}
	}
	var do deeds
	q.mu.Lock()
	for i := range q.parts {
		if q.parts[i].asked != asked[i] {
			stands[i] = isOpen // another one
		}
	}
	switch {
	case q.stop != nil:
	case q.stage == quorumAsking:
		q.decide(stands, tooLong, &do)
	case !tooLong || q.armed: // another transition was first
	case q.stage == quorumPausing:
		q.round(0, &do)
		q.next(&do)
	case q.stage == quorumBlocked:
		q.probe(stands, first, &do)
	}
	if tooLong && q.stage < quorumHeld && !q.listed {
		q.listed, do.list = true, true
	}
	q.mu.Unlock()
	do.run(q)
}

// probe asks another server than the one that it waits at, or all, if that is away and the
// others may be a majority. Where they are away it waits, too. Of those in this process that
// wait at one server, the first asks another often, and the others rarely.
func (q *quorum) probe(stands []standing, first bool, do *deeds) {
	waits := false
	var others []int
	for i := range q.parts {
		p := &q.parts[i]
		switch {
		case p.asked != nil:
			waits = waits || p.waits && stands[i] == isHeld
		case p.err != nil && isSilent(p.err):
			q.ask(i, true, do)
		default:
			others = append(others, i)
		}
	}
	if first {
		q.probes = 0
	} else {
		q.probes = min(q.probes+1, maxProbes)
	}
	q.arm(longWait<<q.probes, do)
	q.again = 0
	switch {
	case waits && len(others) > 0:
		q.probed = others[q.home.world.Int64N(int64(len(others)))]
		q.ask(q.probed, false, do)
	case len(others) >= q.majority():
		q.round(0, do)
	}
}

// passOn is called when it does not wait at a server any more: the first of those that still do
// asks others often from now on. It may have been one that asks rarely, and its time is far away.
func (q *quorum) passOn(i int) {
	m := q.locks[i]
	sh := m.engine().table.Shard(m.route)
	var next *quorum
	sh.Lock()
	if r := sh.Find(m.key); r != nil {
		if first := r.First(); first != nil && first.Rare() != nil {
			next, _ = first.Rare().Quorum.(*quorum)
		}
	}
	sh.Unlock()
	if next == nil {
		return
	}
	var do deeds
	next.mu.Lock()
	if next.stage == quorumBlocked && next.probes > 0 {
		next.probes = 0
		next.arm(longWait, &do)
	}
	next.mu.Unlock()
	do.run(next)
}

func isSilent(err error) bool {
	stand, _ := standingOf(err.(*NotAcquiredError).Err)
	return stand == isAway
}

// waits reports whether it waits at a server.
func (q *quorum) waits() bool {
	return slices.ContainsFunc(q.parts, func(p quorumPart) bool { return p.asked != nil && p.waits })
}
