package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/internal/clock"
)

// quorum is a QuorumLock that somebody wants, and then has. A grant of one of its servers is a
// vote.
//
//	asking --a majority of votes------------------------------> held --Unlock, or too few
//	 ^  ^ |                                                      |     votes are certain
//	 |  | +--no majority, but the referee's vote--> pausing--+   v
//	 |  +----------------------------------------------------+  over
//	 |    |                                                      ^
//	 |    +--neither: votes are given back------> blocked        |
//	 +--a vote, or nothing new for too long---------+            |
//	any but held --context, Wait, Abandon, Close, refused for good (TryLock: refused)
//
// A round asks all servers without a vote, each once, all at the same time. If several do
// that, it may be that each has some votes and nobody enough. Then the referee decides: the
// first server, in the order of the addresses, that is not away. The one with its vote keeps what
// there is, and asks for the rest again after a pause of random length. The others give all
// back, and wait at the referee, as a Lock waits; with its vote they ask for the others. So
// they take turns at one server instead of taking votes from each other. The pauses end: two
// that see different servers away have different referees.
//
// A waiter at one server must not be held up by it if it hangs. So now and then another
// server is asked; and if that grants its vote, all are.
//
// While it is held, it wants the lock where it has no vote, as a Lock does: a server that was
// slow or down joins, and one that lost the lock is asked again. See leave for why that is
// safe.
//
// Invariants:
//
//  1. A part has an acquisition (asked), or a vote, or neither.
//  2. Each vote is bound to its hold: the end of that comes to vote.end before the lock is
//     released there, and waits for the contexts if it is the end of the whole.
//  3. mu is taken without any other lock, and no other lock is taken under it. What is to be
//     done is noted in deeds, and done after it.
//  4. It leads to no QuorumHold: one that was dropped can be noticed.
type quorum struct {
	many
	locks []Mutex
	order []int // in which they are referees
	opts  options
	once  bool // TryLock: each server is tried once
	fate  *fate

	mu       sync.Mutex
	fut      *Future[*QuorumHold] // until it is settled
	stage    quorumStage
	stop     *reason.Stop  // it is given up
	ending   error         // of what was held
	released []*vote       // by Unlock
	unlocked *unlockingAll // that
	parts    []quorumPart
	out      int           // parts that are asked
	tries    int           // pauses, with the referee's vote
	looks    int           // at rounds that had no result
	again    int           // rounds after votes that came too late, since the latest probe
	patience time.Duration // how long this round waits at least
	probes   int           // since it is blocked
	probed   int           // the latest
	failed   int           // rounds without a majority
	late     int           // of these, with grants that came after their leases
	listed   bool          // with its engines
	timer    taskTimer     // of the stage
	armed    bool
	since    clock.Instant // it is held
	last     clock.Instant // it is not held longer: a fixed lease, or MaxHold; 0: no bound
	lease    time.Duration // that is asked for, if fixed: as long as the longest Extend
}

type quorumStage uint8

const (
	quorumAsking quorumStage = iota
	quorumPausing
	quorumBlocked
	quorumHeld
	quorumOver
)

// quorumPart is what a quorum knows of one of its servers.
type quorumPart struct {
	parent *holding // the lock is re-entered under it
	asked  *acquisition
	since  clock.Instant // it is asked
	waits  bool          // asked does, until it is granted; else it is one try
	slow   bool          // it did not answer in good time
	vote   *vote
	err    error // the latest answer, if that was a refusal
	cut    bool  // err is none: the whole was given up first
	lost   error // what became of the latest vote
}

// startQuorum starts to ask for the lock. It does not block.
func startQuorum(ctx context.Context, l *quorumLock, o options, parents []*holding, once, async bool) (*quorum, *Future[*QuorumHold]) {
	q := &quorum{
		locks: l.locks, order: l.order, opts: o, lease: o.lease, once: once,
		parts: make([]quorumPart, len(l.locks)), fate: &fate{done: make(chan struct{})},
	}
	fut := &Future[*QuorumHold]{source: q}
	q.fut = fut
	q.timer.init(q.tick)
	q.opts.waitGiven = false // it bounds the whole
	do := deeds{mayOverflow: async}
	for i, h := range parents {
		q.parts[i].parent = h
		q.ask(i, false, &do)
	}
	q.begin(ctx, q, l.locks, o, async) // from here on it may be given up
	do.run(q)
	return q, fut
}

// majority is how many votes are needed.
func (q *quorum) majority() int { return len(q.parts)/2 + 1 }

// ask notes that a server is to be asked. The caller holds mu.
func (q *quorum) ask(i int, waits bool, do *deeds) {
	q.out++
	m := q.locks[i]
	a := m.engine().newAcquisition(m, q.opts, true)
	a.Lease = q.lease
	a.More().Quorum = q
	p := &q.parts[i]
	a.Once, a.Parent = !waits, p.parent.inner()
	p.asked, p.waits, p.err, p.since = a, waits, nil, m.engine().clock.Stamp()
	do.ask = append(do.ask, request{i, a})
}

// told is called with the result of one server.
func (q *quorum) told(i int, h *Hold, err error) {
	var v *vote
	if h != nil {
		if v, err = q.bind(i, h); v == nil {
			h.unlockAsync(false)
		}
	}
	var do deeds
	q.mu.Lock()
	q.out--
	p := &q.parts[i]
	waited := p.waits
	p.asked, p.err, p.cut, p.slow = nil, err, q.stop != nil, false
	switch {
	case v == nil:
	case v.why != nil:
		p.lost, p.err = v.why, endedBefore(q.locks[i].name, v.why)
	case q.stage == quorumOver:
		do.give = append(do.give, v)
	default:
		p.vote = v
	}
	if q.stage == quorumBlocked && q.stop == nil && p.vote != nil {
		q.resume(i, &do)
	}
	switch q.stage {
	case quorumHeld:
		q.changed(i, &do)
	case quorumOver:
	default:
		q.next(&do)
	}
	q.mu.Unlock()
	do.run(q)
	if waited {
		q.passOn(i)
	}
}

// next goes on after an answer, while it is not held. The caller holds mu.
func (q *quorum) next(do *deeds) {
	certain, refused, held, forGood := 0, 0, 0, 0
	for i := range q.parts {
		switch p := &q.parts[i]; {
		case p.vote != nil && p.vote.hold.h.InTime():
			certain++
		case p.asked == nil && p.err != nil:
			refused++
			if isClosed(p.err) && q.stop == nil {
				q.fail(notAcquired(q.locks[0].name, ErrClosed), do)
				return
			}
			stand, _ := standingOf(p.err.(*NotAcquiredError).Err)
			switch {
			case stand == isHeld:
				held++
			case !passes(p.err):
				forGood++
			}
		}
	}
	spare := len(q.parts) - q.majority()
	switch {
	case q.stop != nil:
		if q.out == 0 {
			q.fail(q.verdict(), do)
		}
		return
	case certain >= q.majority():
		q.elected(do)
		return
	case forGood > spare, q.once && refused > spare && (held > spare || held+q.out <= spare):
		q.fail(q.verdict(), do) // the rest does not change it any more
		return
	case q.once && refused > spare:
		q.giveVotes(do) // the rest decides only what is to be said
	case q.once:
	case q.stage == quorumAsking:
		if q.out > 0 && (refused > 0 || q.waits()) {
			do.look = true // perhaps the others are away
		} else {
			q.decide(nil, false, do)
		}
	case q.stage == quorumBlocked:
		q.block(do)
	}
	if refused > 0 && !q.listed {
		q.listed, do.list = true, true
	}
}

func isClosed(err error) bool {
	return slices.Contains(reason.Of(err.(*NotAcquiredError).Err), ErrClosed)
}

// elected: a majority has granted it.
func (q *quorum) elected(do *deeds) {
	q.stage, q.since = quorumHeld, q.home.clock.Now()
	for i := range q.parts {
		if v := q.parts[i].vote; v != nil && v.maxEnd != 0 && (q.last == 0 || v.maxEnd < q.last) {
			q.last = v.maxEnd
		}
	}
	if q.opts.lease != 0 {
		q.last = q.until()
	}
	for i := range q.parts {
		if p := &q.parts[i]; p.vote == nil && p.asked == nil && (p.err == nil || mayPass(p.err)) {
			q.ask(i, true, do)
		}
	}
	do.settle, q.fut = q.fut, nil
	do.hold = newQuorumHold(q)
}

// mayPass reports whether a server that refused may grant it later.
func mayPass(err error) bool {
	return passes(err) || slices.Contains(reason.Of(err.(*NotAcquiredError).Err), ErrOverloaded)
}

// onItsWay is how much later than a majority an answer may be to count since then. If it is later,
// somebody else may have had the lock there meanwhile; the look at the others costs a command each.
const onItsWay = 250 * time.Millisecond

// changed goes on after an answer while it is held: with a vote more, or by asking again.
func (q *quorum) changed(i int, do *deeds) {
	switch p := &q.parts[i]; {
	case p.vote != nil:
		// If it was on its way when the whole was held, and comes soon, it is as the others.
		if now := q.home.clock.Now(); p.waits || now.Sub(q.since) > onItsWay {
			p.vote.joined = now
			q.lookAtOthers(i, do)
		}
		do.join, do.last = p.vote, q.last
	case mayPass(p.err): // the answer to the one try of a TryLock, or lost meanwhile
		q.ask(i, true, do)
	}
}

// fail ends it without the lock. The caller holds mu.
func (q *quorum) fail(err error, do *deeds) {
	q.stage = quorumOver
	q.giveUp(do)
	do.settle, q.fut, do.err = q.fut, nil, err
}

// giveUp takes all votes, and ends what is asked.
func (q *quorum) giveUp(do *deeds) {
	q.giveVotes(do)
	for i := range q.parts {
		if a := q.parts[i].asked; a != nil {
			do.cancel = append(do.cancel, a)
		}
	}
}

// giveVotes takes all votes. The caller holds mu.
func (q *quorum) giveVotes(do *deeds) {
	for i := range q.parts {
		if p := &q.parts[i]; p.vote != nil {
			do.give = append(do.give, p.vote)
			p.vote = nil
		}
	}
}

// cancel implements manyTaker.
func (q *quorum) cancel(s reason.Stop) bool {
	var do deeds
	q.mu.Lock()
	if q.stage >= quorumHeld || q.stop != nil {
		q.mu.Unlock()
		return false
	}
	q.stop = &s
	for i := range q.parts {
		if a := q.parts[i].asked; a != nil {
			do.cancel = append(do.cancel, a)
		}
	}
	if q.out == 0 {
		q.fail(q.verdict(), &do)
	}
	q.mu.Unlock()
	do.why = s
	do.run(q)
	return true
}

func (q *quorum) over() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stage >= quorumHeld
}

func (q *quorum) waitOver() { q.cancel(reason.Stop{Cause: reason.ErrWaited, Late: true}) }

// The methods below make a quorum the source of its future.

func (q *quorum) abandon()           { q.cancel(reason.Stop{Cause: reason.ErrAbandoned}) }
func (q *quorum) drop(h *QuorumHold) { h.unlockAll(false) }
