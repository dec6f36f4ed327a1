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

// aheadFor is for how long a primary must have had more replicas than a rival that has
// some. It is longer than an entry counts in a list that is out of date, and a search lasts.
const aheadFor = heardLately + 2*time.Second

// succession decides which server is the primary where replicas are promoted by hand. It
// has no input but what servers say of themselves, and the time.
//
// Several may say that they are the primary: for a moment during a promotion, or because
// an old primary has come back and nobody has demoted it. Each of them stands for a reign:
// the time since it became one. The rules:
//
//  1. The reign that most replicas follow wins; among equals the one that clients have
//     followed so far, or one that continues the data of a server that is gone. Between two
//     that are there, continuing the other's data decides nothing: a replica that was told
//     to be one by hand, and restarts without its configuration, looks like a promoted one.
//  2. The winner is followed at once, unless the one that clients follow is there, or another
//     reign has replicas too, or is later. Then it must have been ahead for aheadFor: a primary
//     that comes back from a partition still lists the replicas that have left it.
//  3. While that time lasts, or nobody wins, a primary that is alive is not left. One that
//     has not answered, but may, counts as what it was.
//  4. Once a primary is gone, an unrelated or older one without replicas is no successor as
//     long as a replica has the data of that one. Somebody is going to promote it.
//     If nobody has it, the gone one has aheadFor to come back: it may be restarting.
//
// It is asked about servers of this deployment only: see replicaFinder.apart.
type succession struct {
	configured []string
	opening    time.Duration // instead of aheadFor, as long as there is no primary to stay with
	present    standing      // of the latest primary, when it last answered; addr is "" if there was none
	seen       clock.Instant // when it last answered anything, an error perhaps
	ahead      string        // the reign that is about to win
	since      clock.Instant
}

// reign is a server's time as the primary.
type reign struct {
	id, before string
	addr       string // "": known only by its replicas, or because they have its data
	open       bool   // its server has not answered
	followers  int
	server     standing
}

// after reports whether a continues the data of b.
func (a *reign) after(b *reign) bool { return a.before != "" && a.before == b.id }

// choose returns the primary, by what all servers have said.
func (s *succession) choose(all []standing, now clock.Instant) (standing, error) {
	if slices.ContainsFunc(all, func(a standing) bool { return a.addr == s.present.addr && a.refuses() }) {
		s.seen = now
	}
	reigns := s.reigns(all)
	winner := s.winner(reigns)
	if winner == nil || winner.id != s.ahead {
		s.ahead = ""
	}
	if winner != nil && winner.addr != "" && !winner.open && s.settled(winner, reigns, all, now) {
		s.present, s.seen = winner.server, now
		return s.present, nil
	}
	if i := slices.IndexFunc(reigns, func(r *reign) bool { return s.reigning(r) && !r.open }); i >= 0 && reigns[i].addr != "" {
		s.present, s.seen = reigns[i].server, now
		return s.present, nil
	}
	return standing{}, s.undecided(all, reigns, winner)
}

// reigning reports whether r is that of the server that was the primary so far.
func (s *succession) reigning(r *reign) bool {
	return s.present.addr != "" && (r.addr == s.present.addr || r.id == s.present.id)
}

// reigns lists the reigns that count. A server that has two names has one.
func (s *succession) reigns(all []standing) (list []*reign) {
	of := func(id string) *reign {
		i := slices.IndexFunc(list, func(r *reign) bool { return r.id == id })
		if i < 0 {
			i, list = len(list), append(list, &reign{id: id})
		}
		return list[i]
	}
	kept := false // by a replica: the data of the latest primary
	for _, a := range all {
		switch {
		case a.primary:
			r := of(a.id)
			r.before, r.followers = a.before, max(r.followers, a.attached)
			if r.addr == "" || a.addr == s.present.addr && slices.Contains(s.configured, a.addr) {
				r.addr, r.server = a.addr, a
			}
		case a.demoted() && a.id != "" && a.id == s.present.id:
			kept = true
		}
	}
	heard := make(map[string]int)
	for _, a := range all {
		if a.linked {
			heard[a.id]++
		}
	}
	var last standing
	if i := slices.IndexFunc(all, func(a standing) bool { return a.addr == s.present.addr }); i >= 0 {
		last = all[i]
	}
	if last.demoted() || last.primary && last.id != s.present.id {
		delete(heard, s.present.id) // that reign is over, whatever its replicas have yet to hear
	}
	if kept && !last.primary || last.open {
		r := of(s.present.id)
		r.before = s.present.before
		if last.open && r.addr == "" {
			r.addr, r.open, r.followers = s.present.addr, true, s.remaining(list)
		}
	}
	for id, n := range heard {
		if r := of(id); r.addr == "" || r.open { // else it has said itself how many they are
			r.followers = max(r.followers, n)
		}
	}
	slices.SortFunc(list, func(a, b *reign) int {
		return cmp.Or(b.followers-a.followers, strings.Compare(a.addr, b.addr))
	})
	return list
}

// remaining is how many of its replicas the latest primary has, which cannot be asked: those
// that have been promoted, and those that follow them, have left it.
func (s *succession) remaining(others []*reign) int {
	n := s.present.attached
	for _, r := range others {
		if s.present.id != "" && r.before == s.present.id {
			n -= 1 + r.followers
		}
	}
	return max(0, n)
}

// winner returns the reign that has most replicas, by the first rule; nil if that cannot
// be told.
func (s *succession) winner(reigns []*reign) *reign {
	for _, w := range reigns {
		beats := func(r *reign) bool {
			switch {
			case r == w || w.followers > r.followers:
				return true
			case w.followers < r.followers || r.after(w):
				return false
			}
			return s.reigning(w) || w.after(r) && r.addr == ""
		}
		if !slices.ContainsFunc(reigns, func(r *reign) bool { return !beats(r) }) {
			return w
		}
	}
	return nil
}

// settled reports whether the winner may be followed now, by the second rule, and whatever
// those will say that have yet to answer: none of them can have as many replicas.
func (s *succession) settled(w *reign, reigns []*reign, all []standing, now clock.Instant) bool {
	if s.reigning(w) {
		return true
	}
	if s.restarting(all, now) && !w.after(&reign{id: s.present.id}) {
		return false
	}
	open, elsewhere := 0, 0
	for _, a := range all {
		if a.open && a.addr != s.present.addr {
			open++
		}
	}
	rivals := false
	for _, r := range reigns {
		if r == w {
			continue
		}
		rivals = rivals || r.followers > 0 || r.after(w) || s.reigning(r) && r.addr != "" && !r.open
		if r.addr == "" {
			elsewhere += r.followers
		}
	}
	if open > 0 && w.followers <= open-1+elsewhere {
		return false
	}
	if s.ahead == "" {
		s.ahead, s.since = w.id, now
	}
	wait := aheadFor
	if s.present.addr == "" {
		wait = s.opening
	}
	return !rivals || now.Sub(s.since) >= wait
}

// restarting reports whether the primary so far is gone, and may be back in a moment.
func (s *succession) restarting(all []standing, now clock.Instant) bool {
	gone := func(a standing) bool { return a.addr == s.present.addr && a.err != nil }
	return slices.ContainsFunc(all, gone) && now.Sub(s.seen) < aheadFor
}

// undecided says why nobody is the primary.
func (s *succession) undecided(all []standing, reigns []*reign, winner *reign) error {
	var failed []error
	var claim []string
	for _, a := range all {
		if a.err != nil {
			failed = append(failed, a.err)
		}
	}
	for _, r := range reigns {
		if r.addr != "" && !r.open {
			claim = append(claim, r.addr)
		}
	}
	why := fmt.Errorf("resp: no primary among %s", addrsOf(all))
	switch {
	case winner != nil && winner.addr == "" && winner.followers > 0:
		why = fmt.Errorf("resp: no primary among %s: replicas follow a server that does not answer", addrsOf(all))
	case len(claim) > 0:
		why = fmt.Errorf("resp: %s: it cannot be told who is the primary; make all but one follow that one (REPLICAOF)", strings.Join(claim, ", "))
	}
	if len(failed) < len(all) {
		why = &NotYet{why} // some have answered
	}
	return errors.Join(append(failed, why)...)
}

func addrsOf(list []standing) string {
	var addrs []string
	for _, a := range list {
		addrs = append(addrs, a.addr)
	}
	return strings.Join(addrs, ", ")
}
