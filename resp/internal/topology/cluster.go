package topology

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/pawl-lock/pawl/resp/internal/replyreader"
	"github.com/pawl-lock/pawl/resp/internal/slot"
	"github.com/pawl-lock/pawl/resp/wire"
)

// clusterFinder asks the nodes of a cluster with CLUSTER SLOTS, which every
// version knows.
type clusterFinder struct {
	cfg    *Config
	probes *probes
	good   string   // the node that answered last
	known  []string // the primaries of the latest layout
	groups groupTracker
}

func (t *clusterFinder) watch(ctx context.Context, _ func(string)) { <-ctx.Done() }

// find takes the first answer of a node of this deployment. It may be out of date, as that of a
// node that has lost contact with the others is. Then MOVED leads to the right node.
func (t *clusterFinder) find(ctx context.Context, hint string, count bool) (*Layout, error) {
	t.cfg.Identity.began()
	defer t.cfg.Identity.ended()
	v, err := askFirst(ctx, t.probes, t.probes.candidates(hint, t.good, t.known, t.cfg.Addrs), func(ctx context.Context, addr string) (clusterView, error) {
		return t.ask(ctx, addr, count)
	})
	if err != nil {
		return nil, err
	}
	l := v.layout
	t.cfg.Identity.Believe(l.ids...)
	t.good, t.known = v.from, l.Primaries()
	switch {
	case v.uncounted != nil:
		l.Groups = unknownGroups(v.uncounted)
	case count:
		l.Groups = t.groups.next(v.nodes)
	}
	return l, nil
}

// clusterView is a cluster, as one of its nodes sees it.
type clusterView struct {
	from      string
	layout    *Layout
	nodes     []clusterNode
	uncounted error // why they are not known
}

// nameServing gives the primaries the addresses at which they are dialled: in a cluster
// that keeps its nodes' addresses to itself CLUSTER NODES has others.
func (v *clusterView) nameServing() {
	dialled := make(map[string]string)
	for _, s := range v.layout.Shards {
		dialled[s.id] = s.Primary
	}
	for i := range v.nodes {
		p := &v.nodes[i].peer
		if addr, ok := dialled[v.nodes[i].id]; ok && !slices.Contains(p.dialled, addr) {
			p.dialled = append(p.dialled, addr)
		}
	}
}

func (t *clusterFinder) ask(ctx context.Context, addr string, count bool) (seen clusterView, err error) {
	seen.from = addr
	v, err := t.probes.ask(ctx, t.cfg.Servers, addr, "CLUSTER", "SLOTS")
	if err != nil {
		return seen, err
	}
	if seen.layout, err = t.parse(v, addr); err != nil {
		return seen, fmt.Errorf("resp: CLUSTER SLOTS of %s: %w", addr, err)
	}
	if !t.cfg.Identity.believes(addr, seen.layout.ids) {
		return seen, &NotYet{fmt.Errorf("resp: CLUSTER SLOTS of %s: %w", addr, ErrForeign)}
	}
	if count { // CLUSTER SLOTS hides nodes that have failed
		if v, err = t.probes.ask(ctx, t.cfg.Servers, addr, "CLUSTER", "NODES"); err == nil {
			seen.nodes, err = t.cfg.clusterNodes(string(v.Bytes), addr)
		}
		seen.uncounted = err
		seen.nameServing()
	}
	return seen, nil
}

var errNoSlots = errors.New("the node knows of no slot that is served; check that the cluster is up")

// maxPrimaries bounds what one answer has the client connect to. Redis recommends 1000
// nodes at most.
const maxPrimaries = 1024

// parse reads the answer of the node at asked. Slots of a primary whose address cannot be
// dialled are left out: the others can be served.
func (t *clusterFinder) parse(v wire.Value, asked string) (*Layout, error) {
	l := &Layout{ids: nodeIDs(v)}
	refused := error(&NotYet{errNoSlots})
	for _, entry := range replyreader.Elements(v) {
		e := replyreader.Elements(entry)
		if len(e) < 3 {
			return nil, fmt.Errorf("%w: an entry of %d elements", wire.ErrProtocol, len(e))
		}
		first, last := e[0].Int, e[1].Int
		if e[0].Kind != wire.KindInt || e[1].Kind != wire.KindInt || first < 0 || last < first || last >= slot.Count {
			return nil, fmt.Errorf("%w: slots %d to %d", wire.ErrProtocol, first, last)
		}
		node := replyreader.Elements(e[2])
		if len(node) < 2 || node[1].Kind != wire.KindInt {
			return nil, fmt.Errorf("%w: a node without host and port", wire.ErrProtocol)
		}
		host := string(node[0].Bytes)
		if host == "?" && len(node) > 3 {
			host = replyreader.Field(node[3], "ip") // it has not got the hostname that it is to be known by
		}
		primary, err := t.cfg.announced(host, strconv.FormatInt(node[1].Int, 10), asked)
		if err != nil {
			refused = err
			continue
		}
		s := Shard{First: uint16(first), Last: uint16(last), Primary: primary}
		if len(node) > 2 {
			s.id = string(node[2].Bytes)
		}
		l.Shards = append(l.Shards, s)
	}
	if len(l.Shards) == 0 {
		return nil, refused
	}
	if n := len(l.Primaries()); n > maxPrimaries {
		return nil, fmt.Errorf("%w: %d primaries", wire.ErrProtocol, n)
	}
	return l, l.check()
}
