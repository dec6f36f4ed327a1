package resp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// replicaTopology finds the primary among servers that are told by hand who follows
// whom: it asks all for their ROLE.
type replicaTopology struct {
	cfg     *Config
	scouts  *scouts
	known   []string // the replicas of the latest primary, if some are not configured
	present string   // the latest primary
}

// answered is what one server said of its role.
type answered struct {
	addr     string
	err      error
	open     bool // it may be the primary, for all that is known: it has yet to answer
	primary  bool
	attached int      // of a primary: how many replicas are, as it sees them
	replicas []string // their addresses, a few at most
	acks     string   // all that it says of them, with how much each has acknowledged
	follows  bool     // a replica, connected to its primary
	of       string   // the primary of a replica
}

func (t *replicaTopology) watch(ctx context.Context, _ func(string)) { <-ctx.Done() }

func (t *replicaTopology) find(ctx context.Context, _ string, _ bool) (*layout, error) {
	addrs := unique(t.cfg.Addrs, []string{t.present}, t.known)
	all := t.askAll(ctx, addrs)
	one, err := t.choose(all)
	var more []string
	switch {
	case err != nil: // perhaps one that was asked follows one that was not
		for _, a := range all {
			if a.follows || t.present == "" { // one that has lost its primary has nothing new to tell
				more = append(more, a.of)
			}
		}
	case t.present != "" && one.addr != t.present: // perhaps its replicas have left it: see outdated
		more = one.replicas
	}
	if others := unique(addrs, more)[len(addrs):]; len(others) > 0 {
		all = append(all, t.askAll(ctx, others)...)
		one, err = t.choose(all)
	}
	if err != nil {
		return nil, err
	}
	t.known, t.present = nil, one.addr
	if t.following(all) < one.attached { // else its replicas are configured, by other names perhaps
		t.known = one.replicas
	}
	return &layout{shards: []Shard{{Last: slotCount - 1, Primary: one.addr}}, groups: t.groups(one.addr)}, nil
}

// groups is what the user has said: nobody else keeps a list.
func (t *replicaTopology) groups(primary string) *groups {
	g := new(group)
	for _, addr := range unique([]string{primary}, t.cfg.Addrs) {
		g.peers = append(g.peers, peer{names: []string{addr}, dialled: []string{addr}})
	}
	g.replicas = len(g.peers) - 1
	gs := new(groups)
	gs.add(g)
	return gs
}

func (t *replicaTopology) askAll(ctx context.Context, addrs []string) (all []answered) {
	for _, f := range askAll(ctx, addrs, t.scouts.patience, t.ask) {
		a := f.answer
		a.addr, a.err = f.addr, f.err
		var refused *ServerError
		switch {
		case errors.Is(f.err, errSilent):
			a.open = t.scouts.silence(f.addr) < t.cfg.DialTimeout
		case errors.As(f.err, &refused) && f.addr == t.present:
			// It is alive, and is what it was until it says otherwise, as with MASTERDOWN.
			a.open = refused.Code != "MASTERDOWN"
		}
		all = append(all, a)
	}
	return all
}

func (t *replicaTopology) ask(ctx context.Context, addr string) (a answered, err error) {
	role, err := t.scouts.ask(ctx, t.cfg, addr, "ROLE")
	if err != nil {
		return a, err
	}
	switch e := elements(role); {
	case roleOf(role) == "master" && len(e) >= 3:
		a.primary, a.attached, a.replicas = true, e[2].Len(), t.replicas(e[2])
		for _, r := range elements(e[2]) {
			for _, field := range elements(r) {
				a.acks += string(field.Bytes) + " "
			}
		}
	case len(e) >= 4:
		a.follows = string(e[3].Bytes) == "connected"
		a.of, _ = t.cfg.announced(string(e[1].Bytes), strconv.FormatInt(e[2].Int, 10), addr)
	}
	return a, nil
}

// choose finds the primary. Several servers may say that they are one: for a moment during
// a promotion by hand, or because an old primary has come back and nobody has demoted it.
// The one with most replicas attached wins; one whose list is out of date counts as having
// none. A server may be known by two names, and would then count twice. So the servers that
// others have named count only if the configured ones, and the present primary, cannot decide.
func (t *replicaTopology) choose(all []answered) (answered, error) {
	var failed []error
	following := false
	all = slices.Clone(all)
	for i, a := range all {
		if t.outdated(a, all) {
			all[i].attached = 0
		}
		following = following || a.follows
		if a.err != nil {
			failed = append(failed, a.err)
		}
	}
	configured := slices.DeleteFunc(slices.Clone(all), func(a answered) bool { return !slices.Contains(t.cfg.Addrs, a.addr) })
	first := slices.DeleteFunc(slices.Clone(all), func(a answered) bool {
		return !slices.Contains(t.cfg.Addrs, a.addr) && (a.addr != t.present || twice(a, configured))
	})
	var list []answered
	for _, scope := range [][]answered{first, all} {
		list = slices.DeleteFunc(slices.Clone(scope), func(a answered) bool { return !a.primary })
		slices.SortStableFunc(list, func(a, b answered) int { return b.attached - a.attached })
		switch {
		case len(list) == 0:
		case len(list) > 1 && list[0].attached == list[1].attached:
		case list[0].attached == 0 && following:
			// A replica is connected to its primary, and that is another.
		case list[0].addr != t.present && !settled(list[0], scope):
		default:
			return list[0], nil
		}
	}
	why := fmt.Errorf("resp: no primary among %s", addrsOf(all))
	if len(list) > 0 {
		why = fmt.Errorf("resp: %s: it cannot be told who is the primary; make all but one follow that one (REPLICAOF)", addrsOf(list))
	}
	if len(failed) < len(all) {
		why = &notYet{why} // some have answered
	}
	return answered{}, errors.Join(append(failed, why)...)
}

// outdated reports whether a primary lists as its replica what is a primary: it has come
// back from a partition, and has yet to notice that its replicas have left.
//
// Behind NAT, or a tunnel, what answers at such an address may be that primary itself,
// which then is on its own list, or a server of somebody else. So nobody is evidence
// unless replicas of the list are missing; and one that is not known only if it is a
// rival that is, by another name, for it has the same replicas.
func (t *replicaTopology) outdated(a answered, all []answered) bool {
	if t.following(all) >= a.attached {
		return false
	}
	known := func(b answered) bool { return b.addr == t.present || slices.Contains(t.cfg.Addrs, b.addr) }
	return slices.ContainsFunc(all, func(b answered) bool {
		rival := func(k answered) bool {
			return known(k) && k.primary && k.addr != a.addr && slices.Equal(k.replicas, b.replicas)
		}
		return b.primary && b.addr != a.addr && slices.Contains(a.replicas, b.addr) &&
			!slices.Contains(b.replicas, b.addr) && (known(b) || slices.ContainsFunc(all, rival))
	})
}

// following counts the configured replicas that are connected to their primary.
func (t *replicaTopology) following(all []answered) (n int) {
	for _, a := range all {
		if a.follows && slices.Contains(t.cfg.Addrs, a.addr) {
			n++
		}
	}
	return n
}

// twice reports whether a primary is in the list by another name, too. The same replicas
// are not enough: one that comes back from a partition lists those of its time until it
// notices that they have left. What they have acknowledged has stood still there.
func twice(a answered, list []answered) bool {
	return slices.ContainsFunc(list, func(b answered) bool {
		return b.addr != a.addr && a.attached > 0 && a.acks == b.acks
	})
}

// settled reports whether a primary stays the choice whatever those say that have yet to
// answer: none of them can have as many replicas.
func settled(best answered, among []answered) bool {
	open, following := 0, 0
	for _, a := range among {
		if a.open {
			open++
		}
		if a.follows {
			following++
		}
	}
	return open == 0 || best.attached > open-1+max(0, following-best.attached)
}

func addrsOf(list []answered) string {
	var addrs []string
	for _, a := range list {
		addrs = append(addrs, a.addr)
	}
	return strings.Join(addrs, ", ")
}

// replicas reads the list in a primary's ROLE: one of those may be promoted next.
func (t *replicaTopology) replicas(list Value) (addrs []string) {
	for _, r := range elements(list) {
		e := elements(r)
		if len(e) < 2 {
			continue
		}
		if addr, err := t.cfg.announced(string(e[0].Bytes), string(e[1].Bytes), ""); err == nil {
			addrs = append(addrs, addr)
		}
		if len(addrs) == maxAnnounced {
			break
		}
	}
	return addrs
}
