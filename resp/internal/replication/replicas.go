package replication

import (
	"bytes"
	"net"

	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/topology"
	"github.com/pawl-lock/pawl/resp/wire"
)

// replicas is which replicas of a primary are there, as of a ROLE.
type replicas struct {
	attached int      // -1: not known
	total    int      // that there are, those that are away included
	away     []string // the others, as far as that can be told
	err      error    // why total is not known
}

// readRole reads the answer of the primary to ROLE.
func (l *Lane) readRole(r request.Reply) replicas {
	err := r.Err
	if err == nil {
		err = topology.IsPrimary(r.Value)
	}
	if err != nil {
		return replicas{attached: -1, err: err}
	}
	list := attachedTo(r.Value)
	seen := l.cfg.HighWater.Observe(distinct(list), r.Now)
	g, err := l.cfg.Group(l.cfg.Addr)
	if err != nil {
		return replicas{attached: list.Len(), total: max(list.Len(), seen), err: err}
	}
	return newReplicas(list, seen, g, l.cfg.Addr)
}

// newReplicas is that of the primary at self, which has these replicas now, and had so many
// lately. There are as many as are attached, as were, and as its group has, whichever is most.
func newReplicas(attached wire.Value, seen int, g *topology.Group, self string) replicas {
	n := attached.Len()
	a := replicas{attached: n, total: max(n, seen, g.Replicas)}
	if n < g.Replicas {
		var names []string
		eachReplica(attached, func(host, port []byte) bool {
			names = append(names, net.JoinHostPort(string(host), string(port)))
			return true
		})
		a.away = g.Away(self, names)
	}
	return a
}

// attachedTo is the list of replicas in a primary's answer to ROLE.
func attachedTo(role wire.Value) (list wire.Value) {
	role.Each(func(i int, v wire.Value) bool {
		list = v
		return i < 2
	})
	return list
}

// eachReplica calls f with the address of each replica in such a list, until it returns
// false.
func eachReplica(list wire.Value, f func(host, port []byte) bool) {
	list.Each(func(_ int, replica wire.Value) bool {
		var words [2][]byte
		replica.Each(func(i int, v wire.Value) bool {
			words[i] = v.Bytes
			return i == 0
		})
		return f(words[0], words[1])
	})
}

// distinct counts the addresses in such a list: a replica that has connected anew, while
// the primary has not noticed the end of the connection before, is in it twice. It makes
// no garbage; in a long list it takes each for another.
func distinct(list wire.Value) (n int) {
	var seen [16]struct{ host, port []byte }
	if list.Len() > len(seen) {
		return list.Len()
	}
	eachReplica(list, func(host, port []byte) bool {
		for _, s := range seen[:n] {
			if bytes.Equal(s.host, host) && bytes.Equal(s.port, port) {
				return true
			}
		}
		seen[n].host, seen[n].port = host, port
		n++
		return true
	})
	return n
}

// waitFor returns how many acknowledgements are worth waiting for: no more than replicas
// are attached. If it is not known how many are, "all" is not worth a timeout before it is.
func (state replicas) waitFor(a request.Acks) int {
	if state.attached < 0 {
		return max(0, int(a))
	}
	return min(a.Of(state.total), state.attached)
}

// evaluate says what a WAIT means for a request: it was sent with the number asked, and so many
// acknowledged, or it failed. With again it means nothing: too few have acknowledged, and the WAIT was
// sent with too low a number to decide.
func (state replicas) evaluate(wants request.Acks, asked, acked int, failed error) (ack request.Ack, again bool) {
	ack = request.Ack{Wanted: wants.Of(state.total), Err: failed}
	if failed == nil && wants < 0 {
		ack.Err = state.err
	}
	if ack.Err == nil {
		ack.Acked = acked
		if ack.Missing() && asked < state.waitFor(wants) {
			return request.Ack{}, true
		}
	}
	if ack.Missing() {
		ack.Away = state.away
	}
	return ack, false
}
