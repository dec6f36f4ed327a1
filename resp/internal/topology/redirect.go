package topology

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/slot"
	"github.com/pawl-lock/pawl/resp/wire"
)

// MaxHops is how often a command is sent on, at most: at once, and that twice at once shows that
// the nodes do not agree yet. A slot that is moved atomically is each one's and the other's for some
// milliseconds. Then the refusal goes back to the caller, who pauses; one pause is for all that
// he has to send there, and it grows.
const MaxHops = 2

// Refused is where a command was refused.
type Refused struct {
	Kind    Kind        // of the deployment
	Addr    string      // of the server
	Hops    uint8       // how often the command had been sent on
	AddrMap *AddressMap // what it has not been asked yet is not known
}

// Action is what follows from a refusal. The zero value is nothing: it goes back to the
// caller, who knows how urgent it is.
type Action struct {
	To        string  // where the command is sent on to
	Slot      uint16  // that it is about
	Permanent bool    // To serves that slot from now on; else this command goes there, and no other
	Refresh   Refresh // whether the layout may be another
	Hint      string  // of RefreshNow
	Unknown   string  // an address that AddrMap has to be asked for
	Doubt     Doubt   // whether the connection leads where its address does by now
	Advice    string  // for the user, behind the text of the refusal
}

// Doubt is what a refusal says of the connection that it came on. An address is not a server: the
// machine behind a name, a service or a balancer is replaced, and connections to the old one stay.
type Doubt uint8

const (
	// NoDoubt: another connection to this address would be refused, too.
	NoDoubt Doubt = iota
	// IfItLasts: so would it be in a failover, which is over soon, or while slots move.
	IfItLasts
	// AtOnce: the server names its own address as the better one. So another is behind it.
	AtOnce
	// Certain: the connection itself is refused.
	Certain
)

// Refresh says whether a search is asked for: see Explorer.
type Refresh uint8

const (
	NoRefresh Refresh = iota
	RefreshSoon
	RefreshNow
)

// ActionOf says what follows from a refusal. A refused command was not executed, so to send
// it on is always right; it only must not go on for ever. It runs no code of the user.
//
//	MOVED              the slot is another node's: it is so from now on, and as one
//	                   slot seldom moves alone, the layout is asked for
//	ASK                this key is another node's already, the slot is not yet
//	both, to itself    its address leads to another server by now
//	CLUSTERDOWN        the slot is nobody's: ask for the layout
//	READONLY,          the node is a replica by now: ask for the layout; alone, the
//	MASTERDOWN         name or the proxy may lead to another server if asked again
//	NOREPLICAS and     the same, but no layout would tell; not so OOM, which refuses some
//	others of a node   commands only, and not the one that a new connection would ask with
//	NOAUTH and others  the connection is of no use any more
func ActionOf(e *wire.ServerError, at Refused) (r Action) {
	switch e.Code {
	case "MOVED", "ASK":
		return at.sentOn(e)
	case "CLUSTERDOWN", "MASTERDOWN":
		r.Refresh, r.Doubt = RefreshSoon, IfItLasts
	case "READONLY":
		r.Refresh, r.Doubt = RefreshNow, IfItLasts
		if at.Kind == Standalone {
			r.Advice = " (this is a replica: connect with redis+sentinel:// or redis+replicas://)"
		}
	default:
		switch of := request.RefusalOf(e).Of; {
		case of == request.OfConnection:
			r.Doubt = Certain
		case of == request.OfNode && e.Code != "OOM":
			r.Doubt = IfItLasts
		}
	}
	return r
}

// sentOn is what follows from MOVED and ASK.
func (at Refused) sentOn(e *wire.ServerError) (r Action) {
	number, announced, own, err := at.target(e.Message)
	to := announced
	if err == nil && !own && at.AddrMap != nil {
		if to, err = at.AddrMap.lookUp(announced); err != nil {
			r.Unknown = announced
			if err != errUntranslated {
				r.Advice = " (" + err.Error() + ")"
			}
		}
	}
	r.Refresh = RefreshNow
	if r.Doubt = IfItLasts; err == nil && strings.EqualFold(to, at.Addr) {
		r.Doubt = AtOnce
	}
	switch {
	case at.Kind != Cluster:
		return Action{Doubt: r.Doubt, Advice: " (this is a node of a cluster: connect with redis+cluster://)"}
	case err != nil || r.Doubt == AtOnce || at.Hops >= MaxHops:
		return r
	}
	r.To, r.Slot = to, number
	if r.Permanent = e.Code == "MOVED"; r.Permanent {
		r.Hint = to // and whoever says so again and again may be one whom the layout does not mean
	} else {
		r.Refresh, r.Doubt = NoRefresh, NoDoubt
	}
	return r
}

// target reads "MOVED 3999 127.0.0.1:6381". Without a host it means the server that says it.
func (at Refused) target(message string) (number uint16, addr string, own bool, err error) {
	words := strings.Fields(message)
	if len(words) < 3 {
		return 0, "", false, errNoTarget
	}
	n, err := strconv.ParseUint(words[1], 10, 16)
	colon := strings.LastIndexByte(words[2], ':')
	if err != nil || n >= slot.Count || colon < 0 {
		return 0, "", false, errNoTarget
	}
	// The host "?" has no name to tell, and is refused: the layout has its address.
	addr, own, err = parseAnnounced(strings.Trim(words[2][:colon], "[]"), words[2][colon+1:], at.Addr)
	return uint16(n), addr, own, err
}

var errNoTarget = fmt.Errorf("%w: it names no server", wire.ErrProtocol)
