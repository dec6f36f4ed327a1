package resp

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pawl-lock/pawl/resp/internal/pipeline"
	"github.com/pawl-lock/pawl/resp/internal/slot"
	"github.com/pawl-lock/pawl/resp/internal/topology"
)

// maxHops is how often a command is sent on, at most. Two nodes that each believe the
// other to be the one must not keep it for ever.
const maxHops = 5

// errRetired is why the connections of a node end that serves nothing any more.
var errRetired = errors.New("resp: the server serves this part of the keys no longer")

// redirect sends the command of a on, if the refusal e says where to, and reports
// whether it did. A refused command was not executed, so that is always right; it only
// must not go on for ever. Refusals that mean "not now" go back to the caller, who knows
// how urgent it is. It runs on the event loop of a's node.
//
//	MOVED              the slot is another node's: it is so from now on, and as one
//	                   slot seldom moves alone, the layout is asked for
//	ASK                this key is another node's already, the slot is not yet
//	CLUSTERDOWN        the slot is nobody's: ask for the layout
//	READONLY,          the node is a replica by now: ask for the layout; alone, the
//	MASTERDOWN         name or the proxy may lead to another server if asked again
//	                   (READONLY, which only a replica says)
func (l *link) redirect(a pipeline.Answer, e *ServerError) bool {
	c := l.node.client
	if _, ok := a.Request.(*member); l.role >= RoleDurable && !ok {
		return false // ROLE and WAIT are for this node
	}
	switch e.Code {
	case "MOVED", "ASK":
		if !c.Clustered() {
			e.Message += " (this is a node of a cluster: connect with redis+cluster://)"
			return false
		}
		slot, addr, err := l.node.target(e.Message)
		if err != nil || a.Hops >= maxHops {
			if err != nil && err != topology.ErrUntranslated && !errors.Is(err, ErrProtocol) {
				e.Message += " (" + err.Error() + ")" // of AddrMap
			}
			c.explorer.Kick("")
			return false
		}
		var to *node
		if e.Code == "MOVED" {
			to = c.patch(slot, addr)
			c.explorer.Kick(addr)
		} else {
			to = c.nodeAt(addr)
		}
		if to == nil {
			c.explorer.Nudge() // a search makes room for others
			return false
		}
		c.redirects.Add(1)
		to.take(l, a.Request, a.Hops+1, e.Code == "ASK")
		return true
	case "CLUSTERDOWN", "MASTERDOWN":
		c.explorer.Nudge()
	case "READONLY":
		c.explorer.Kick("")
		if !c.Clustered() { // what stands behind the address may have changed
			l.node.reconnect(e)
		}
		if c.cfg.Topology == Standalone {
			e.Message += " (this is a replica: connect with redis+sentinel:// or redis+replicas://)"
		}
	}
	return false
}

// target reads "MOVED 3999 127.0.0.1:6381". Without a host it means this node's. What
// AddrMap makes of an address that is new, the explorer asks: the command is refused
// this once.
func (n *node) target(message string) (moved uint16, addr string, err error) {
	words := strings.Fields(message)
	if len(words) < 3 {
		return 0, "", errNoTarget
	}
	number, err := strconv.ParseUint(words[1], 10, 16)
	colon := strings.LastIndexByte(words[2], ':')
	if err != nil || number >= slot.Count || colon < 0 {
		return 0, "", errNoTarget
	}
	// The host "?" has no name to tell, and is refused: the layout has its address.
	host := strings.Trim(words[2][:colon], "[]")
	addr, own, err := topology.ParseAnnounced(host, words[2][colon+1:], n.cfg.Addr)
	if err == nil && !own && n.cfg.AddrMap != nil {
		announced := addr
		if addr, err = n.cfg.addrs.LookUp(announced); err != nil {
			n.client.explorer.Translate(announced)
		}
	}
	return uint16(number), addr, err
}

var errNoTarget = fmt.Errorf("%w: it names no server", ErrProtocol)

// take sends a request as l did at its node.
func (n *node) take(l *link, r Request, hops uint8, asking bool) {
	switch l.role {
	case RoleLane:
		n.lanes[l.index].Send(r, hops, asking)
	case RoleRenewal:
		n.renewal.Send(r, hops, asking)
	default:
		r.(*member).moveTo(n.durable[l.role-RoleDurable], hops, asking)
	}
}
