package resp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
)

// clusterTopology asks the nodes of a cluster with CLUSTER SLOTS, which every
// version knows.
type clusterTopology struct {
	cfg   *Config
	known []string // the primaries of the latest layout
}

func (t *clusterTopology) watch(ctx context.Context, _ func()) { <-ctx.Done() }

// find takes the first answer: nodes that have lost the others go on telling what
// they knew, but so may any, and whoever follows it is sent on by MOVED.
func (t *clusterTopology) find(ctx context.Context, hint string) (*layout, error) {
	var failed []error
	for _, addr := range candidates(hint, t.known, t.cfg.Addrs) {
		v, err := t.cfg.scout(ctx, addr, "CLUSTER", "SLOTS")
		if err == nil {
			var l *layout
			if l, err = t.parse(v, addr); err == nil {
				t.known = t.known[:0]
				for _, s := range l.shards {
					if !slices.Contains(t.known, s.Primary) {
						t.known = append(t.known, s.Primary)
					}
				}
				return l, nil
			}
			err = fmt.Errorf("resp: CLUSTER SLOTS of %s: %w", addr, err)
		}
		if failed = append(failed, err); ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(failed...)
}

var errNoSlots = errors.New("the node knows of no slot that is served; check that the cluster is up")

// parse reads the answer of the node at asked.
func (t *clusterTopology) parse(v Value, asked string) (*layout, error) {
	l := new(layout)
	for _, entry := range elements(v) {
		e := elements(entry)
		if len(e) < 3 {
			return nil, fmt.Errorf("%w: an entry of %d elements", ErrProtocol, len(e))
		}
		first, last := e[0].Int, e[1].Int
		if e[0].Kind != KindInt || e[1].Kind != KindInt || first < 0 || last < first || last >= slotCount {
			return nil, fmt.Errorf("%w: slots %d to %d", ErrProtocol, first, last)
		}
		node := elements(e[2])
		if len(node) < 2 || node[1].Kind != KindInt {
			return nil, fmt.Errorf("%w: a node without host and port", ErrProtocol)
		}
		host := string(node[0].Bytes)
		if host == "?" && len(node) > 3 {
			host = metadata(node[3], "ip")
		}
		l.shards = append(l.shards, Shard{
			First: uint16(first), Last: uint16(last),
			Primary: t.cfg.announced(host, strconv.FormatInt(node[1].Int, 10), asked),
		})
	}
	if len(l.shards) == 0 {
		return nil, errNoSlots
	}
	return l, l.check()
}

// metadata finds a field in what CLUSTER SLOTS tells of a node beside its address, a
// flat list: a node that shall be known by its hostname, and has none, is "?" there.
func metadata(list Value, name string) string {
	fields := elements(list)
	for i := 0; i+1 < len(fields); i += 2 {
		if string(fields[i].Bytes) == name {
			return string(fields[i+1].Bytes)
		}
	}
	return ""
}

// announced is the address that a server tells of, as it is dialled from here. Without
// a host it means the one at which it was asked.
func (c *Config) announced(host, port, asked string) string {
	if host == "" {
		host, _, _ = net.SplitHostPort(asked)
		return net.JoinHostPort(host, port)
	}
	return c.mapped(net.JoinHostPort(host, port))
}

func shuffled(list []string) []string {
	list = slices.Clone(list)
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}
