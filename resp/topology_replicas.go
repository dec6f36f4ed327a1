package resp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// replicaTopology finds the primary among servers that are told by hand who follows
// whom: it asks all for their ROLE.
type replicaTopology struct {
	cfg   *Config
	known []string // what the latest primary said of its replicas
}

func (t *replicaTopology) watch(ctx context.Context, _ func()) { <-ctx.Done() }

func (t *replicaTopology) find(ctx context.Context, _ string) (*layout, error) {
	addrs := candidates("", t.cfg.Addrs, t.known)
	roles, errs := make([]Value, len(addrs)), make([]error, len(addrs))
	var asking sync.WaitGroup
	for i, addr := range addrs {
		asking.Go(func() { roles[i], errs[i] = t.cfg.scout(ctx, addr, "ROLE") })
	}
	asking.Wait()
	var primaries []string
	var replicas [][]string
	followers := make(map[string]int)
	for i, addr := range addrs {
		switch e := elements(roles[i]); {
		case errs[i] != nil:
		case roleOf(roles[i]) == "master" && len(e) >= 3:
			primaries = append(primaries, addr)
			replicas = append(replicas, t.replicas(e[2]))
		case len(e) >= 3 && e[2].Kind == KindInt:
			followers[t.cfg.mapped(net.JoinHostPort(string(e[1].Bytes), strconv.FormatInt(e[2].Int, 10)))]++
		}
	}
	switch len(primaries) {
	case 0:
		return nil, errors.Join(append(errs, fmt.Errorf("resp: no primary among %s", strings.Join(addrs, ", ")))...)
	case 1:
	default:
		// A promotion by hand has such a moment: the old primary has not been told yet.
		// Whom the replicas follow is the one; if they do not say, nobody is.
		most := slices.MaxFunc(primaries, func(a, b string) int { return followers[a] - followers[b] })
		for _, p := range primaries {
			if p != most && followers[p] == followers[most] {
				return nil, fmt.Errorf("resp: %s all say that they are the primary; make all but one follow it (REPLICAOF)", strings.Join(primaries, ", "))
			}
		}
		i := slices.Index(primaries, most)
		primaries, replicas = primaries[i:i+1], replicas[i:i+1]
	}
	t.known = replicas[0]
	return &layout{shards: []Shard{{Last: slotCount - 1, Primary: primaries[0]}}}, nil
}

// replicas reads the list in a primary's ROLE: one of those may be promoted next.
func (t *replicaTopology) replicas(list Value) []string {
	var addrs []string
	for _, r := range elements(list) {
		if e := elements(r); len(e) >= 2 {
			addrs = append(addrs, t.cfg.mapped(net.JoinHostPort(string(e[0].Bytes), string(e[1].Bytes))))
		}
	}
	return addrs
}
