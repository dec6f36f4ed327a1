package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/quorum"
)

// NotAcquired implements quorum.Port: the error of an acquisition of a RedLock that has failed.
func (q *redLockAcquisition) NotAcquired(f quorum.Failure) error {
	name := q.locks[0].name
	why := &noMajority{of: len(q.locks), granted: f.Granted}
	switch f.Is {
	case quorum.EngineIsClosed:
		return notAcquired(name, ErrClosed)
	case quorum.NoAnswer:
		why.is = lockerr.ErrEarly
	case quorum.IsHeld:
		why.is = ErrHeld
	case quorum.IsUnavailable:
		why.is = ErrUnavailable
	case quorum.IsRefused:
		why.is = q.textOf(f.ForGood, 0)
	}
	for _, one := range f.Each {
		text := q.textOf(one, 0)
		is := lockerr.Parts(text)
		switch state, at := stateIn(is); state {
		case quorum.Held:
			text = is[at]
		case quorum.Unavailable:
			text = lockerr.Wrap(is[at:]...)
		}
		why.each = append(why.each, &serverError{q.locks[one.Server].home.serverName(), text})
	}
	err := notAcquired(name, why)
	if f.Stop != nil && f.Stop.Cause != nil {
		err = notAcquired(name, lockerr.Wrap(f.Stop.Cause, why))
	}
	err.TTL = f.TTL
	return err
}

// textOf is the error of one server of several. What has ended just now has ended as last.
func (q *redLockAcquisition) textOf(one quorum.ServerResult, last lock.Loss) error {
	switch one.Is {
	case quorum.Silent:
		return lockerr.ErrSilent
	case quorum.GivenBack:
		return errGivenBack
	case quorum.Cut:
		return lockerr.ErrEarly
	case quorum.NotGranted:
		return errNotGranted
	case quorum.GrantedAgain:
		return errGrantedAgain
	case quorum.EndedNow:
		return lossAt(last)
	case quorum.TooLate:
		return endedBefore(q.locks[one.Server].name, one.Why).Err
	case quorum.WasLost:
		if lost, yes := one.Why.(*LostError); yes && lost.Err == nil {
			return lossAt(lost.Reason)
		} else if yes {
			return lost.Err
		}
	}
	return one.Why
}

// refusalOf is what the refusal of one server says.
func refusalOf(err error) quorum.Refusal {
	why := err.(*NotAcquiredError).Err
	is := lockerr.Parts(why)
	r := quorum.Refusal{
		Why: why, Passes: passes(err),
		Full: slices.Contains(is, ErrOverloaded), Late: slices.Contains(is, ErrGrantTooLate), Closed: slices.Contains(is, ErrClosed),
	}
	at := 0
	if r.State, at = stateIn(is); r.State == quorum.Held {
		held := is[at].(*lockerr.Held)
		r.TTL, r.Here = held.TTL, held.Here
	}
	return r
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

// Lost implements quorum.Port: the end of a hold that has too few votes.
func (q *redLockAcquisition) Lost(l quorum.Loss) error {
	why := &tooFew{left: l.Left, of: len(q.locks)}
	for _, one := range l.Each {
		why.each = append(why.each, &serverError{q.locks[one.Server].home.serverName(), q.textOf(one, l.Last)})
	}
	return &LostError{Name: q.locks[0].name, Reason: LostReason(l.Last), Err: why}
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
func (q *redLockAcquisition) unreleased(votes []*quorum.Vote, errs []error) error {
	before, gone := 0, 0
	var last *LostError
	var each, losses []error
	for i, err := range errs {
		server := q.locks[votes[i].Server].home.serverName()
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
	case before >= q.Majority():
		return withName(q.locks[0].name, ErrNotHeld)
	case len(votes)-gone < q.Majority():
		return &LostError{Name: q.locks[0].name, Reason: last.Reason, Err: &tooFew{len(votes) - gone, len(q.locks), losses}}
	}
	return joined(each)
}

// stateIn reads it out of reasons of this package, with the place of what says so.
func stateIn(is []error) (state quorum.ServerState, at int) {
	for i, one := range is {
		if _, yes := one.(*lockerr.Held); yes {
			return quorum.Held, i
		}
		if one == ErrUnavailable {
			return quorum.Unavailable, i
		}
	}
	return quorum.Unknown, 0
}
