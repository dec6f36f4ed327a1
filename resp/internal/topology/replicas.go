package topology

import (
	"context"
	"errors"
	"slices"

	"github.com/pawl-lock/pawl/resp/internal/slot"
)

// replicaFinder finds the primary among servers that are told by hand who follows whom:
// it asks all for their standing, and has the succession decide.
type replicaFinder struct {
	cfg        *Config
	scouts     *scouts
	succession succession
	known      []string // the replicas of the latest primary that had some, if some are not configured
}

func newReplicaFinder(c *Config, s *scouts) *replicaFinder {
	opening := min(aheadFor, c.DialTimeout*4/5) // WaitFirst gives up after DialTimeout
	return &replicaFinder{cfg: c, scouts: s, succession: succession{configured: c.Addrs, opening: opening}}
}

func (t *replicaFinder) watch(ctx context.Context, _ func(string)) { <-ctx.Done() }

func (t *replicaFinder) find(ctx context.Context, _ string, _ bool) (*Layout, error) {
	one, err := t.primary(func(addrs []string) []standing { return t.askAll(ctx, addrs) })
	if err != nil {
		return nil, err
	}
	return &Layout{Shards: []Shard{{Last: slot.Count - 1, Primary: one.addr}}, Groups: Configured(one.addr, t.cfg.Addrs)}, nil
}

// maxChain is how many replicas of replicas a search follows up to the primary.
const maxChain = 4

// primary asks all servers that it has heard of, and those that they name.
func (t *replicaFinder) primary(ask func(addrs []string) []standing) (standing, error) {
	addrs := unique(t.cfg.Addrs, []string{t.succession.present.addr}, t.known)
	all := ask(addrs)
	for range maxChain {
		others := unique(addrs, t.named(all))[len(addrs):]
		if len(others) == 0 {
			break
		}
		addrs = append(addrs, others...)
		all = append(all, ask(others)...)
	}
	one, err := t.succession.choose(all, t.cfg.Clock.Now())
	if err != nil {
		return one, err
	}
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
func (t *replicaFinder) named(all []standing) (addrs []string) {
	trial := t.succession
	one, err := trial.choose(all, t.cfg.Clock.Now())
	for _, a := range all {
		if err != nil || a.linked && a.id != one.id {
			addrs = append(addrs, a.of)
		}
	}
	if err == nil && one.addr != t.succession.present.addr {
		addrs = append(addrs, one.replicas...)
	}
	return addrs
}

// following counts the configured replicas that hear from their primary.
func (t *replicaFinder) following(all []standing) (n int) {
	for _, a := range all {
		if a.linked && slices.Contains(t.cfg.Addrs, a.addr) {
			n++
		}
	}
	return n
}

// askAll returns what all say, in their order: a configured name stands before another of the
// same server.
func (t *replicaFinder) askAll(ctx context.Context, addrs []string) (all []standing) {
	for _, f := range askAll(ctx, t.scouts, addrs, t.ask) {
		a := f.answer
		a.addr, a.err = f.addr, f.err
		a.open = f.err != nil && t.open(&a)
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b standing) int { return slices.Index(addrs, a.addr) - slices.Index(addrs, b.addr) })
	return all
}

// open reports whether a server that has answered with an error, or not at all, may yet say
// that it is the primary. The present one is what it was for as long as it answers anything.
func (t *replicaFinder) open(a *standing) bool {
	owed, silent := t.scouts.owes(a.addr)
	switch {
	case errors.Is(a.err, ErrSilent):
		return silent < t.cfg.DialTimeout
	case a.addr == t.succession.present.addr:
		return a.refuses()
	}
	return postponed(a.err) && owed < t.cfg.DialTimeout
}

func (t *replicaFinder) ask(ctx context.Context, addr string) (standing, error) {
	info, err := t.scouts.ask(ctx, t.cfg.Servers, addr, "INFO", "replication")
	if err != nil {
		return standing{}, err
	}
	return parseStanding(t.cfg, addr, string(info.Bytes)), nil
}
