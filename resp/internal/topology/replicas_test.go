package topology

import (
	"slices"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/internal/clock"
)

func TestReplicaFinder_Apart_SeparatesForeignServers(t *testing.T) {
	t.Parallel()
	at := func(s replicationInfo, connected clock.Instant) replicationInfo {
		s.connectedSince = connected
		return s
	}
	const believed = 10
	for name, c := range map[string]struct {
		present replicationInfo // its data is known
		all     []replicationInfo
		others  string
	}{
		"at the start the configured servers say whose data it is": {
			all:    []replicationInfo{trails("a", "A", true), leads("10.0.0.1", "A", "", 1), leads("10.0.0.2", "F", "", 3)},
			others: "10.0.0.2",
		},
		"a configured server is never foreign": {
			present: leads("a", "A", "", 1),
			all:     []replicationInfo{leads("a", "F", "", 0), leads("b", "G", "", 0)},
		},
		"a replica was promoted": {
			present: leads("10.0.0.1", "A", "", 1),
			all:     []replicationInfo{mute("10.0.0.1", true), leads("10.0.0.2", "B", "A", 0), leads("10.0.0.3", "F", "", 2)},
			others:  "10.0.0.3",
		},
		"somebody else's primary at the address of the present one": {
			present: leads("10.0.0.1", "A", "", 1),
			all:     []replicationInfo{at(leads("10.0.0.1", "F", "", 0), believed+1), trails("a", "A", false)},
			others:  "10.0.0.1",
		},
		"somebody else's replica there": {
			present: leads("10.0.0.1", "A", "", 1),
			all:     []replicationInfo{at(trails("10.0.0.1", "F", true), believed+1), trails("a", "A", false)},
			others:  "10.0.0.1",
		},
		"the present one restarts empty, and a configured replica has its data": {
			present: leads("10.0.0.1", "A", "", 1),
			all:     []replicationInfo{at(leads("10.0.0.1", "N", "", 1), believed+1), trails("a", "N", true)},
		},
		"the present one begins another history, on the same connection": {
			present: leads("10.0.0.1", "A", "", 0),
			all:     []replicationInfo{at(leads("10.0.0.1", "N", "", 0), believed-1), mute("a", false)},
		},
		"servers of another make do not say whose data they have": {
			present: leads("10.0.0.1", "10.0.0.1", "", 0),
			all:     []replicationInfo{at(trails("10.0.0.1", "", false), never), leads("10.0.0.2", "10.0.0.2", "", 0)},
			others:  "10.0.0.2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			f := newReplicaFinder(w.config(Replicas, "a", "b"), nil)
			if f.resolver.followed = c.present; c.present.addr != "" {
				f.cfg.Identity.Believe(c.present.ids()...)
				f.believed = believed
			}
			for i := range c.all {
				if c.all[i].connectedSince == 0 {
					c.all[i].connectedSince = never
				}
			}
			ours, others := f.apart(c.all)
			var addrs []string
			for _, a := range others {
				addrs = append(addrs, a.addr)
			}
			if got := strings.Join(addrs, " "); got != c.others || len(ours)+len(others) != len(c.all) {
				t.Errorf("foreign: %q", got)
			}
			if !slices.IsSortedFunc(ours, func(a, b replicationInfo) int { return index(c.all, a.addr) - index(c.all, b.addr) }) {
				t.Error("the order has changed")
			}
		})
	}
}

func index(all []replicationInfo, addr string) int {
	return slices.IndexFunc(all, func(a replicationInfo) bool { return a.addr == addr })
}
