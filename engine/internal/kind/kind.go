// Package kind says how the synchronizers differ, as data: one file for each. The engine
// asks a Kind; it has no switch over kinds. A Kind decides nothing and keeps no state.
package kind

import (
	"strings"

	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/resp"
)

// Kind is a kind of synchronizer. Locks of different kinds share a key on the server, but
// not their local state: the holder of one is a stranger to the other.
type Kind uint8

// The kinds. Each has a row in the table.
const (
	Mutex Kind = iota
	Spin
	Count = iota
)

// row is what differs.
type row struct {
	name    string // as hooks show it
	channel string // the prefix of the channel where a release is announced, as Redisson has it; "": waiters poll
}

var table = [Count]row{Mutex: mutex, Spin: spin}

// String returns the name, as hooks show it.
func (k Kind) String() string { return table[k].name }

// Polls reports whether its waiters poll: then a release is announced nowhere.
func (k Kind) Polls() bool { return table[k].channel == "" }

// Channel is where the release of a lock is announced, with a verb (PUBLISH and its
// relatives); the zero Channel if its waiters poll.
func (k Kind) Channel(lock, verb string) script.Channel {
	if k.Polls() {
		return script.Channel{}
	}
	return script.Channel{Prefix: table[k].channel, Lock: lock, Verb: verb}
}

// Placeable reports whether the channel of a lock is in the slot of its key, as it must be in
// a cluster. If not, it also returns the name of the channel. The braces of that name follow
// Redisson's rule, which looks for a { only: {}a, a{b, a}b{c} and a}b have tags that the key
// has not, or the other way round.
func (k Kind) Placeable(lock string) (channel string, ok bool) {
	if k.Polls() || !strings.ContainsAny(lock, "{}") {
		return "", true
	}
	channel = k.Channel(lock, "").Name()
	return channel, resp.SlotOf(channel) == resp.SlotOf(lock)
}
