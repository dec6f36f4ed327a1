package topology

import (
	"errors"
	"fmt"
	"slices"
)

// Group is a primary with its replicas, according to whatever decides about promotions
// (sentinels, cluster nodes, the configuration). Replicas that are away are in it, until
// the deployment itself has dropped them. It does not change once it is made.
type Group struct {
	Replicas int // beside the primary
	peers    []peer
}

// peer is a server of a group.
type peer struct {
	names   []string // host:port, as the servers know each other
	dialled []string // as they are dialled from here
}

// Groups is what a deployment said of all its groups at one moment. They are found by the
// address of every server, since any may be promoted before the next look.
type Groups struct {
	of  map[string]*Group
	Err error // why nothing is known
}

// Configured is what the user has said, where nobody else keeps a list: one group of all.
func Configured(primary string, addrs []string) *Groups {
	g := new(Group)
	for _, addr := range unique([]string{primary}, addrs) {
		g.peers = append(g.peers, peer{names: []string{addr}, dialled: []string{addr}})
	}
	g.Replicas = len(g.peers) - 1
	gs := new(Groups)
	gs.add(g)
	return gs
}

func unknownGroups(err error) *Groups {
	return &Groups{Err: fmt.Errorf("resp: it is not known how many replicas there are: %w", err)}
}

// add puts g in, whose first peer is the primary. Of an address that servers have had one
// after the other, the group counts whose primary has it now.
func (gs *Groups) add(g *Group) {
	if gs.of == nil {
		gs.of = make(map[string]*Group)
	}
	for i, p := range g.peers {
		for _, addr := range p.dialled {
			if i == 0 || gs.of[addr] == nil {
				gs.of[addr] = g
			}
		}
	}
}

var ErrNotListed = errors.New("resp: it is not known how many replicas there are: the deployment has not listed this server yet")

// At returns the group of the server at an address.
func (gs *Groups) At(addr string) (*Group, error) {
	switch {
	case gs.Err != nil:
		return nil, gs.Err
	case gs.of[addr] == nil:
		return nil, ErrNotListed
	}
	return gs.of[addr], nil
}

// Away lists the peers that are not attached to the one at self. If the primary knows its
// replicas by other names than the group does that cannot be told, and the list is nil.
func (g *Group) Away(self string, attached []string) (list []string) {
	for _, p := range g.peers {
		there := func(name string) bool { return slices.Contains(attached, name) }
		if !slices.Contains(p.dialled, self) && !slices.ContainsFunc(p.names, there) {
			list = append(list, p.names[0])
		}
	}
	if len(list)+len(attached) != g.Replicas {
		return nil
	}
	return list
}
