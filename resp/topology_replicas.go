package resp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// replicaTopology finds the primary among servers that are told by hand who follows
// whom: it asks all for their ROLE.
type replicaTopology struct {
	cfg     *Config
	known   []string // what the latest primary said of its replicas
	present string   // the latest primary
}

// answered is what one server said of its role.
type answered struct {
	addr     string
	err      error
	primary  bool
	replicas []string // of a primary: those that are attached, as it sees them
	follows  bool     // a replica, connected to its primary
	of       string   // the primary of a replica
}

func (t *replicaTopology) watch(ctx context.Context, _ func()) { <-ctx.Done() }

func (t *replicaTopology) find(ctx context.Context, _ string) (*layout, error) {
	addrs := candidates("", nil, t.cfg.Addrs)
	for _, addr := range candidates("", t.known, nil) {
		if !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	all := t.askAll(ctx, addrs)
	one, err := t.choose(all)
	if err != nil {
		// Perhaps one that was asked follows one that was not.
		var others []string
		for _, a := range all {
			if a.of != "" && !slices.Contains(addrs, a.of) && !slices.Contains(others, a.of) {
				others = append(others, a.of)
			}
		}
		if len(others) > 0 {
			one, err = t.choose(append(all, t.askAll(ctx, others)...))
		}
	}
	if err != nil {
		return nil, err
	}
	t.known, t.present = one.replicas, one.addr
	return &layout{shards: []Shard{{Last: slotCount - 1, Primary: one.addr}}}, nil
}

// askAll asks them at the same time.
func (t *replicaTopology) askAll(ctx context.Context, addrs []string) []answered {
	all := make([]answered, len(addrs))
	var asking sync.WaitGroup
	for i, addr := range addrs {
		asking.Go(func() { all[i] = t.ask(ctx, addr) })
	}
	asking.Wait()
	return all
}

func (t *replicaTopology) ask(ctx context.Context, addr string) answered {
	role, err := t.cfg.scout(ctx, addr, "ROLE")
	a := answered{addr: addr, err: err}
	if err != nil {
		return a
	}
	switch e := elements(role); {
	case roleOf(role) == "master" && len(e) >= 3:
		a.primary, a.replicas = true, t.replicas(e[2])
	case len(e) >= 4:
		a.follows = string(e[3].Bytes) == "connected"
		a.of = t.cfg.announced(string(e[1].Bytes), strconv.FormatInt(e[2].Int, 10), addr)
	}
	return a
}

// choose finds the primary. Several may say that they are: a promotion by hand has such
// a moment, and one that comes back after it has not been told yet. The one that
// replicas are attached to is it. Addresses do not help: a replica may be known by
// another name than the one it was promoted under, so that it would count twice; hence
// what the servers told of counts only if the configured ones cannot decide.
func (t *replicaTopology) choose(all []answered) (answered, error) {
	var primaries []answered
	var failed []error
	following := false
	for _, a := range all {
		following = following || a.follows
		if a.err != nil {
			failed = append(failed, a.err)
			// It is alive, and is what it was until it says otherwise, as with MASTERDOWN.
			var e *ServerError
			if a.addr == t.present && errors.As(a.err, &e) && e.Code != "MASTERDOWN" {
				return a, fmt.Errorf("resp: the primary %s: %w", a.addr, a.err)
			}
		}
		if a.primary {
			primaries = append(primaries, a)
		}
	}
	if len(primaries) == 0 {
		return answered{}, errors.Join(append(failed, fmt.Errorf("resp: no primary among %s", addrsOf(all)))...)
	}
	configured := slices.DeleteFunc(slices.Clone(primaries), func(a answered) bool { return !slices.Contains(t.cfg.Addrs, a.addr) })
	for _, list := range [][]answered{configured, primaries} {
		slices.SortStableFunc(list, func(a, b answered) int { return len(b.replicas) - len(a.replicas) })
		switch {
		case len(list) == 0:
		case len(list) > 1 && len(list[0].replicas) == len(list[1].replicas):
		case len(list[0].replicas) == 0 && following:
			// A replica is connected to its primary, and that is another.
		default:
			return list[0], nil
		}
	}
	return answered{}, fmt.Errorf("resp: %s: it cannot be told who is the primary; make all but one follow that one (REPLICAOF)", addrsOf(primaries))
}

func addrsOf(list []answered) string {
	var addrs []string
	for _, a := range list {
		addrs = append(addrs, a.addr)
	}
	return strings.Join(addrs, ", ")
}

// replicas reads the list in a primary's ROLE: one of those may be promoted next.
func (t *replicaTopology) replicas(list Value) []string {
	var addrs []string
	for _, r := range elements(list) {
		if e := elements(r); len(e) >= 2 {
			addrs = append(addrs, t.cfg.announced(string(e[0].Bytes), string(e[1].Bytes), ""))
		}
	}
	return addrs
}
