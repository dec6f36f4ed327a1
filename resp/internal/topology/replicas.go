package topology

import (
	"context"
	"errors"
	"slices"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/slot"
)

// replicaFinder finds the primary among servers of which somebody decides by hand who follows whom:
// it asks all for INFO replication, and has the resolver decide.
type replicaFinder struct {
	cfg      *Config
	probes   *probes
	resolver failoverResolver
	believed clock.Instant // when the latest primary last said that it is one; 0: never
	known    []string      // the replicas of the latest primary that had some, if some are not configured
}

func newReplicaFinder(c *Config, s *probes) *replicaFinder {
	opening := min(leaveAfter, c.DialTimeout*4/5) // WaitFirst gives up after DialTimeout
	return &replicaFinder{cfg: c, probes: s, resolver: failoverResolver{opening: opening, gone: c.Clock.Now()}}
}

func (t *replicaFinder) watch(ctx context.Context, _ func(string)) { <-ctx.Done() }

func (t *replicaFinder) find(ctx context.Context, _ string, _ bool) (*Layout, error) {
	t.cfg.Identity.began()
	defer t.cfg.Identity.ended()
	one, err := t.primary(func(addrs []string) []replicationInfo { return t.askAll(ctx, addrs) })
	if err != nil {
		return nil, err
	}
	return &Layout{Shards: []Shard{{Last: slot.Count - 1, Primary: one.addr}}, Groups: Configured(one.addr, t.cfg.Addrs)}, nil
}

// maxChain is how many replicas of replicas a search follows up to the primary.
const maxChain = 4

// primary asks all servers that it knows of, and those that they name.
func (t *replicaFinder) primary(ask func(addrs []string) []replicationInfo) (replicationInfo, error) {
	addrs := unique(t.cfg.Addrs, []string{t.resolver.followed.addr}, t.known)
	all := ask(addrs)
	for range maxChain {
		others := unique(addrs, t.named(all))[len(addrs):]
		if len(others) == 0 {
			break
		}
		addrs = append(addrs, others...)
		all = append(all, ask(others)...)
	}
	ours, others := t.apart(all)
	for _, a := range others {
		t.cfg.Identity.doubt(a.addr, a.ids(), false)
	}
	one, err := t.resolver.choose(ours, t.cfg.Clock.Now())
	if err != nil {
		return one, err
	}
	t.cfg.Identity.Believe(one.ids()...)
	t.believed = t.cfg.Clock.Now()
	switch {
	case t.following(all) < one.attached:
		t.known = one.replicas
	case one.attached > 0: // its replicas are configured, by other names perhaps
		t.known = nil
	} // else they may have left it for one of them
	return one, nil
}

// named are servers that may know better than those that have answered: the primaries of
// replicas, if there is none yet, or of those that follow another one; and the replicas of a
// new primary, one of which may have been promoted.
func (t *replicaFinder) named(all []replicationInfo) (addrs []string) {
	trial := t.resolver
	ours, _ := t.apart(all)
	one, err := trial.choose(ours, t.cfg.Clock.Now())
	for _, a := range all {
		if err != nil || a.linked && a.id != one.id {
			addrs = append(addrs, a.primaryAddr)
		}
	}
	if err == nil && one.addr != t.resolver.followed.addr {
		addrs = append(addrs, one.replicas...)
	}
	return addrs
}

// apart tells the servers of this deployment from others that answer at addresses which were
// learnt: behind NAT, or after a pod has gone, those may be anybody's. Others have neither the data
// of the latest primary nor that of a configured server. (A primary without replicas begins another
// history after an hour. It is the same that says so on the same connection.)
func (t *replicaFinder) apart(all []replicationInfo) (ours, others []replicationInfo) {
	configured := func(a replicationInfo) bool { return slices.Contains(t.cfg.Addrs, a.addr) }
	var known []string
	for _, a := range all {
		if configured(a) {
			known = append(known, a.ids()...)
		}
	}
	same := func(a replicationInfo) bool {
		return a.addr == t.resolver.followed.addr && a.connectedSince <= t.believed
	}
	for _, a := range all {
		ids := a.ids()
		shares := func(id string) bool { return slices.Contains(ids, id) }
		if len(ids) == 0 || configured(a) || same(a) || t.cfg.Identity.knows(ids) || slices.ContainsFunc(known, shares) {
			ours = append(ours, a)
		} else {
			others = append(others, a)
		}
	}
	return ours, others
}

// following counts the configured replicas that get data from their primary.
func (t *replicaFinder) following(all []replicationInfo) (n int) {
	for _, a := range all {
		if a.linked && slices.Contains(t.cfg.Addrs, a.addr) {
			n++
		}
	}
	return n
}

// askAll returns what all say, in their order: a configured name stands before another of the
// same server.
func (t *replicaFinder) askAll(ctx context.Context, addrs []string) (all []replicationInfo) {
	for _, f := range askAll(ctx, t.probes, addrs, t.ask) {
		a := f.answer
		a.addr, a.err = f.addr, f.err
		a.silent = pending(f.err)
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b replicationInfo) int { return slices.Index(addrs, a.addr) - slices.Index(addrs, b.addr) })
	return all
}

// pending reports whether a server that was asked has not answered, or only that it cannot for now.
func pending(err error) bool { return errors.Is(err, ErrSilent) || postponed(err) }

func (t *replicaFinder) ask(ctx context.Context, addr string) (replicationInfo, error) {
	info, err := t.probes.ask(ctx, t.cfg.Servers, addr, "INFO", "replication")
	if err != nil {
		return replicationInfo{}, err
	}
	a := parseReplicationInfo(t.cfg, addr, string(info.Bytes))
	a.connectedSince = t.probes.connected(t.cfg.Servers, addr)
	return a, nil
}
