package topology

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pawl-lock/pawl/resp/internal/slot"
	"github.com/pawl-lock/pawl/resp/wire"
)

// MaxHops is how often a command is sent on, at most. Two nodes that each believe the
// other to be the one must not keep it for ever.
const MaxHops = 5

// Refused is where a command was refused.
type Refused struct {
	Kind    Kind        // of the deployment
	Addr    string      // of the server
	Hops    uint8       // how often the command had been sent on
	AddrMap *AddressMap // what it has not been asked yet is not known
}

// Consequence is what follows from a refusal. The zero value is nothing: it goes back to the
// caller, who knows how urgent it is.
type Consequence struct {
	To        string // where the command is sent on to
	Slot      uint16 // that it is about
	Lasting   bool   // To serves that slot from now on; else this command goes there, and no other
	Look      Look   // whether the layout may be another
	Hint      string // of a kick
	Unknown   string // an address that AddrMap has to be asked for
	Reconnect bool   // what stands behind the address may have changed
	Advice    string // for the user, behind the text of the refusal
}

// Look says whether a search is asked for: see Explorer.
type Look uint8

const (
	NoLook Look = iota
	Nudged
	Kicked
)

// ConsequenceOf says what follows from a refusal. A refused command was not executed, so to send
// it on is always right; it only must not go on for ever. It runs no code of the user.
//
//	MOVED              the slot is another node's: it is so from now on, and as one
//	                   slot seldom moves alone, the layout is asked for
//	ASK                this key is another node's already, the slot is not yet
//	CLUSTERDOWN        the slot is nobody's: ask for the layout
//	READONLY,          the node is a replica by now: ask for the layout; alone, the
//	MASTERDOWN         name or the proxy may lead to another server if asked again
//	                   (READONLY, which only a replica says)
func ConsequenceOf(e *wire.ServerError, at Refused) (r Consequence) {
	switch e.Code {
	case "MOVED", "ASK":
		return at.sentOn(e)
	case "CLUSTERDOWN", "MASTERDOWN":
		r.Look = Nudged
	case "READONLY":
		r.Look = Kicked
		r.Reconnect = at.Kind != Cluster
		if at.Kind == Standalone {
			r.Advice = " (this is a replica: connect with redis+sentinel:// or redis+replicas://)"
		}
	}
	return r
}

// sentOn is what follows from MOVED and ASK.
func (at Refused) sentOn(e *wire.ServerError) (r Consequence) {
	if at.Kind != Cluster {
		return Consequence{Advice: " (this is a node of a cluster: connect with redis+cluster://)"}
	}
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
	r.Look = Kicked
	if err != nil || at.Hops >= MaxHops {
		return r
	}
	r.To, r.Slot = to, number
	if r.Lasting = e.Code == "MOVED"; r.Lasting {
		r.Hint = to
	} else {
		r.Look = NoLook
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
