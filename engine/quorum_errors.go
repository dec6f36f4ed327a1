package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/internal/clock"
)

// verdict is the error of a quorum that has failed. The caller holds mu.
func (q *quorum) verdict() error {
	name := q.locks[0].name
	if q.stop != nil && q.stop.Cause == ErrClosed {
		return notAcquired(name, ErrClosed)
	}
	why := &noMajority{of: len(q.parts), is: reason.ErrEarly}
	var ttls []time.Duration
	var forGood error
	away, given := 0, 0
	for i := range q.parts {
		p := &q.parts[i]
		said := error(reason.ErrSilent)
		switch {
		case p.vote != nil:
			why.granted++
			continue
		case p.asked == nil && p.err == nil:
			given++
			said = errGivenBack
		case p.err != nil:
			said = p.err.(*NotAcquiredError).Err
			stand, at := standingOf(said)
			switch {
			case stand == isHeld:
				ttls = append(ttls, at.(*reason.Held).TTL)
				said = at
			case stand == isAway:
				away++
				said = at
			case p.cut:
				said = reason.ErrEarly
			case q.stop == nil:
				forGood = said
			}
		}
		why.each = append(why.each, &serverError{q.locks[i].serverOf(), said})
	}
	spare := len(q.parts) - q.majority()
	ttl := time.Duration(0)
	switch {
	case len(ttls) > spare:
		why.is = ErrHeld
		slices.Sort(ttls)
		ttl = ttls[len(ttls)-spare-1] // then a majority is free
	case away > 0 && len(why.each)-given > spare:
		why.is = ErrUnavailable
	case !q.once && len(ttls) > 0 && len(ttls)+given > spare: // given back for the owner that has the others
		why.is = ErrHeld
		ttl = slices.Max(ttls)
	case forGood != nil:
		why.is = forGood
	}
	err := notAcquired(name, why)
	if q.stop != nil {
		err = notAcquired(name, reason.Because(q.stop.Cause, why))
	}
	err.TTL = ttl
	return err
}

// noMajority is why a QuorumLock was not acquired.
type noMajority struct {
	is      error // ErrHeld, ErrUnavailable, what a server said for good, or errEarly
	of      int
	granted int
	each    []error // of servers that did not grant it
}

func (e *noMajority) Unwrap() error { return e.is }

func (e *noMajority) Error() string {
	return fmt.Sprintf("engine: granted by %d of %d servers, %d are needed: %s", e.granted, e.of, e.of/2+1, listed(e.each))
}

// serverError is an error with the server that it is about.
type serverError struct {
	server string
	err    error
}

func (e *serverError) Error() string { return "engine: " + e.server + ": " + partText(e.err) }
func (e *serverError) Unwrap() error { return e.err }

// listed is the text of errors of several servers: the first few.
func listed(each []error) string {
	const most = 7
	var text []string
	for _, err := range each[:min(most, len(each))] {
		text = append(text, partText(err))
	}
	if more := len(each) - most; more > 0 {
		text = append(text, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(text, "; ")
}

// loss is the end of a hold after the last loss. Left are those that have had the lock since
// then, or before. The caller holds mu.
func (q *quorum) loss(last error, since clock.Instant) error {
	lost, ok := last.(*LostError)
	if !ok {
		return last // released, with what it re-entered
	}
	why := &tooFew{of: len(q.parts)}
	for i := range q.parts {
		p := &q.parts[i]
		about := error(errNotGranted)
		switch l, isLost := p.lost.(*LostError); {
		case p.vote != nil && p.vote.joined > since:
			about = errGrantedAgain
		case p.vote != nil && p.vote.hold.h.InTime():
			continue
		case p.vote != nil: // its time ended just now, and nobody has looked
			about = lossAt(lost.Reason)
		case isLost && l.Err == nil:
			about = lossAt(l.Reason)
		case p.lost != nil:
			about = p.lost
		case p.err != nil:
			about = p.err.(*NotAcquiredError).Err
		}
		why.each = append(why.each, &serverError{q.locks[i].serverOf(), about})
	}
	why.left = min(why.of-len(why.each), q.majority()-1) // one may have joined just now
	return &LostError{Name: q.locks[0].name, Reason: lost.Reason, Err: why}
}

// tooFew is why a QuorumLock was lost. It has no Unwrap: what is true of one server is not true
// of the whole.
type tooFew struct {
	left, of int
	each     []error // of the servers that are not left
}

func (e *tooFew) Error() string {
	return fmt.Sprintf("engine: %d of %d servers are certain to have it, %d are needed: %s", e.left, e.of, e.of/2+1, listed(e.each))
}

// lossAt is the loss at one server, which is not ErrLost: the whole need not be lost.
type lossAt LostReason

func (e lossAt) Error() string { return LostReason(e).String() }

var (
	errGivenBack    = errors.New("it was granted, and given back")
	errNotGranted   = errors.New("it was not granted there")
	errGrantedAgain = errors.New("it was granted there again, perhaps too late")
)

// unreleased is the error of an Unlock, of those of the servers.
func (q *quorum) unreleased(votes []*vote, errs []error) error {
	before, gone := 0, 0
	var last *LostError
	var each, losses []error
	for i, err := range errs {
		server := q.locks[votes[i].at].serverOf()
		switch lost, isLost := err.(*LostError); {
		case err == nil:
			continue
		case isLost:
			gone, last = gone+1, lost
			err = lossAt(lost.Reason)
			losses = append(losses, &serverError{server, err})
		case isNotHeld(err):
			before++
		}
		each = append(each, &serverError{server, err})
	}
	switch {
	case before >= q.majority():
		return about(q.locks[0].name, ErrNotHeld)
	case len(votes)-gone < q.majority():
		return &LostError{q.locks[0].name, last.Reason, &tooFew{len(votes) - gone, len(q.parts), losses}}
	}
	return joined(each)
}

// standing is what a server has said to an acquisition so far.
type standing uint8

const (
	isOpen standing = iota // nothing yet
	isHeld
	isAway
)

// standing also reports whether a is the first that waits in this process.
func (a *acquisition) standing() (stand standing, first bool) {
	a.Shard.Lock()
	defer a.Shard.Unlock()
	if a.Ended() || a.Resource() == nil {
		return isOpen, false
	}
	stand, _ = standingOf(a.Obstacle(false))
	return stand, a.IsFirst()
}

// standingOf reads it out of the reasons of this package, with what says so.
func standingOf(why error) (standing, error) {
	if why == nil {
		return isOpen, nil
	}
	is := reason.Of(why)
	for i, one := range is {
		if h, yes := one.(*reason.Held); yes {
			return isHeld, h
		}
		if one == ErrUnavailable {
			return isAway, reason.Because(is[i:]...)
		}
	}
	return isOpen, nil
}
