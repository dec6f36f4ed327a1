package topology

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// leaveAfter is for how long the primary must have been gone, or have had fewer replicas than
// another, before it is left. A replica counts for three seconds at most after its primary last
// heard from it (ackedWithin), so a list that is out of date does not last.
const leaveAfter = ackedWithin + 2*time.Second

// failoverResolver decides which server is the primary where replicas are promoted by hand, by what the
// servers of this deployment (see replicaFinder.apart) say of themselves, and the time:
//
//   - Of those that say that they are masters, the one with most connected replicas is the primary.
//     A tie keeps the one followed so far. At the start it is an error.
//   - The one followed is left only when it says that it is no master, or has been gone for
//     leaveAfter, or another has had more replicas for leaveAfter. A server that answers with an error
//     is not gone, and has the replicas that it had last. Nor is one gone while a replica hears from it, or
//     while nobody answers.
//   - Its successor, or the first one, is followed at once if it is the only master, and no server
//     that has not answered can have as many replicas. Otherwise that takes leaveAfter, too.
//
// At any moment a client follows one server. If A is followed, with the replicas B and C, and B is
// promoted:
//
//	C is told to follow B             A(0), B(1): clients go to B after leaveAfter
//	A is told to follow B             clients go to B at once
//	A is cut off from B and C         clients on the side of A stay there, the others leave it after
//	                                  leaveAfter: there are two primaries until the network is whole
//	A comes back, and is not told     A(2) until its list is true, then A(0), B(1): clients stay with B
//	the same, and C has gone          A(0), B(0): clients stay with B, new ones have an error
//
// If B is not promoted, and A has gone:
//
//	A comes back without its data     clients stay with it, and its replicas become empty, too
//	an older primary O comes back     clients go to O after leaveAfter. Whose data a server continues
//	that was not told to follow A     decides nothing, so old primaries must be demoted
type failoverResolver struct {
	opening  time.Duration   // instead of leaveAfter, as long as none has been followed
	followed replicationInfo // as it last said that it was the primary; addr is "" at the start
	left     bool            // it is not to be followed until it says again that it is the primary
	gone     clock.Instant   // since the start, or the first look that it was left or did not answer; 0: it may be there
	behind   clock.Instant   // since the first look that it had fewer replicas than another; 0: it has as many
}

// choose returns the primary, by what all servers have said.
func (s *failoverResolver) choose(all []replicationInfo, now clock.Instant) (replicationInfo, error) {
	masters := s.masters(all)
	here := s.observe(all, masters, now)
	fewer := len(masters) > 0 && masters[0].attached > s.followed.attached
	if s.behind = cmp.Or(s.behind, now); !fewer {
		s.behind = 0
	}
	wait := leaveAfter
	if s.followed.addr == "" {
		wait = s.opening
	}
	switch {
	case !ahead(masters):
	case fewer && now.Sub(s.behind) >= leaveAfter, s.left && (s.gone != 0 && now.Sub(s.gone) >= wait || s.undisputed(masters, all)):
		*s = failoverResolver{followed: masters[0]}
		return s.followed, nil
	}
	if here {
		return s.followed, nil
	}
	return replicationInfo{}, undecided(all, masters)
}

// observe notes what has become of the one followed, and reports whether it is one of the masters:
// by its replication ID, or else, since it begins another one when it restarts, by its address.
func (s *failoverResolver) observe(all, masters []replicationInfo, now clock.Instant) (here bool) {
	i := slices.IndexFunc(masters, func(a replicationInfo) bool { return a.id == s.followed.id })
	if i < 0 {
		i = slices.IndexFunc(masters, func(a replicationInfo) bool { return a.addr == s.followed.addr })
	}
	said := slices.IndexFunc(all, func(a replicationInfo) bool { return a.addr == s.followed.addr })
	switch {
	case i >= 0:
		s.followed, s.left, s.gone = masters[i], false, 0
	case !slices.ContainsFunc(all, func(a replicationInfo) bool { return !a.silent }): // it is the client that is cut off
		s.left, s.gone = s.left || s.followed.addr == "", 0
	case s.followed.addr == "", said >= 0 && all[said].demoted():
		s.left, s.gone = true, cmp.Or(s.gone, now)
	case said >= 0 && all[said].refuses() && !s.left:
		s.gone = 0
	default:
		s.gone = cmp.Or(s.gone, now)
	}
	s.left = s.left || s.gone != 0 && now.Sub(s.gone) >= leaveAfter && !slices.ContainsFunc(all, s.followed.leads)
	return i >= 0
}

// leads reports whether a replica has had data of p, its primary, lately.
func (p replicationInfo) leads(replica replicationInfo) bool {
	return replica.linked && replica.id == p.id
}

// masters lists the servers that say that they are masters, those with most replicas first. One
// that has two names is one: by that of the one followed, else by the first.
func (s *failoverResolver) masters(all []replicationInfo) (list []replicationInfo) {
	for _, a := range all {
		i := slices.IndexFunc(list, func(b replicationInfo) bool { return b.id == a.id })
		switch {
		case !a.primary:
		case i < 0:
			list = append(list, a)
		case a.addr == s.followed.addr:
			list[i] = a
		}
	}
	slices.SortStableFunc(list, func(a, b replicationInfo) int { return b.attached - a.attached })
	return list
}

// ahead reports whether the first one has more replicas than the others.
func ahead(masters []replicationInfo) bool {
	return len(masters) == 1 || len(masters) > 1 && masters[0].attached > masters[1].attached
}

// undisputed reports whether there is one master, whatever those will say that have yet to answer:
// one of them may have the others as replicas, and those that say that they have another primary.
func (s *failoverResolver) undisputed(masters, all []replicationInfo) bool {
	silent, elsewhere := 0, 0
	for _, a := range all {
		switch {
		case a.silent && a.addr != s.followed.addr:
			silent++
		case a.linked && a.id != masters[0].id:
			elsewhere++
		}
	}
	return len(masters) == 1 && masters[0].attached >= silent+elsewhere
}

// undecided says why nobody is the primary.
func undecided(all, masters []replicationInfo) error {
	var failed []error
	for _, a := range all {
		if a.err != nil {
			failed = append(failed, a.err)
		}
	}
	why := fmt.Errorf("resp: no primary among %s", addrsOf(all))
	if len(masters) > 0 {
		why = fmt.Errorf("resp: %s: it cannot be told who is the primary; make all but one follow that one (REPLICAOF)", addrsOf(masters))
	}
	if len(failed) < len(all) {
		why = &NotYet{why} // some have answered
	}
	return errors.Join(append(failed, why)...)
}

func addrsOf(list []replicationInfo) string {
	var addrs []string
	for _, a := range list {
		addrs = append(addrs, a.addr)
	}
	return strings.Join(addrs, ", ")
}
