package topology

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/pawl-lock/pawl/resp/wire"
)

// clusterNode is a line of CLUSTER NODES.
type clusterNode struct {
	id      string
	primary string // the id of the one that it replicates; "" of a primary
	serves  bool   // it has slots
	peer    peer
}

// maxNodes bounds what is believed of one answer. Redis recommends 1000 nodes at most.
const maxNodes = 4096

// clusterNodes reads the answer of the node at asked. Nodes whose handshake is not over
// are left out: nobody knows yet what they are.
func (c *Config) clusterNodes(text, asked string) (nodes []clusterNode, err error) {
	for line := range strings.Lines(text) {
		// id, address, flags, primary, sent, received, epoch, link, slots ...
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if len(nodes) == maxNodes {
			return nil, fmt.Errorf("%w: more than %d nodes", wire.ErrProtocol, maxNodes)
		}
		if len(words) < 8 {
			return nil, fmt.Errorf("%w: a node of %d words", wire.ErrProtocol, len(words))
		}
		flags := strings.Split(words[2], ",")
		if slices.Contains(flags, "handshake") {
			continue
		}
		n := clusterNode{id: words[0], peer: c.clusterPeer(words[1], asked)}
		if slices.Contains(flags, "slave") && words[3] != "-" {
			n.primary = words[3]
		}
		n.serves = slices.ContainsFunc(words[8:], func(s string) bool { return s[0] != '[' }) // those in brackets move
		if len(n.peer.names) == 0 {
			n.peer.names = []string{n.id} // it has no address
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// clusterPeer reads "10.0.0.1:6379@16379,hostname,and more": an address, and perhaps a
// name by which it wants to be known.
func (c *Config) clusterPeer(word, asked string) (p peer) {
	word, more, _ := strings.Cut(word, ",")
	name, _, _ := strings.Cut(more, ",")
	word, _, _ = strings.Cut(word, "@")
	colon := strings.LastIndexByte(word, ':')
	if colon < 0 {
		return p
	}
	port := word[colon+1:]
	for i, host := range []string{strings.Trim(word[:colon], "[]"), name} {
		if i > 0 && (host == "" || strings.ContainsRune(host, '=')) {
			continue // no name, but what later versions add
		}
		addr, err := c.announced(host, port, asked)
		if err != nil {
			continue
		}
		p.dialled = append(p.dialled, addr)
		if host == "" {
			p.names = append(p.names, addr)
		} else {
			p.names = append(p.names, net.JoinHostPort(host, port))
		}
	}
	return p
}

// groupTracker is who replicates whom in a cluster, by the word of one node at a time, which
// may be behind: it takes seconds after a failover until every node knows that the old
// primary and the other replicas follow the new one. Meanwhile, and if the old primary is
// dead, a node stays in the group that it was in:
//
//	before       P (slots)   R1, R2 follow P
//	promotion    R1 (slots)  P has no slots, R2 follows P
//	settled      R1 (slots)  P, R2 follow R1
//
// until it is forgotten, gets slots, or follows a node of another group that has slots.
type groupTracker struct {
	groups []map[string]bool // ids
}

// next takes a later list in, and returns its groups.
func (c *groupTracker) next(nodes []clusterNode) *Groups {
	byID := make(map[string]*clusterNode, len(nodes))
	for i := range nodes {
		byID[nodes[i].id] = &nodes[i]
	}
	placed := make(map[string]map[string]bool) // by the primary
	for _, n := range nodes {
		if n.serves {
			placed[n.id] = map[string]bool{n.id: true}
		}
	}
	loose := make(map[string]bool)
	for _, n := range nodes {
		if n.serves {
			continue
		}
		if g := placed[top(byID, n)]; g != nil {
			g[n.id] = true
		} else {
			loose[n.id] = true
		}
	}
	for _, before := range c.groups {
		for primary := range before {
			for id := range before {
				if g := placed[primary]; g != nil && loose[id] {
					g[id] = true
				}
			}
		}
	}
	c.groups = nil
	gs := new(Groups)
	for primary, ids := range placed {
		c.groups = append(c.groups, ids)
		g := &Group{Replicas: len(ids) - 1, peers: []peer{byID[primary].peer}}
		for id := range ids {
			if id != primary {
				g.peers = append(g.peers, byID[id].peer)
			}
		}
		gs.add(g)
	}
	return gs
}

// top returns the id at the end of the chain of primaries that begins with n: right after
// a failover a replica follows one that follows another by now.
func top(byID map[string]*clusterNode, n clusterNode) string {
	for range 4 { // no longer one is left for long
		up := byID[n.primary]
		if n.primary == "" || up == nil {
			break
		}
		n = *up
	}
	return n.id
}
