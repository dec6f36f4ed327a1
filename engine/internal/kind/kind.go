// Package kind says how the synchronizers differ, as data: one file for each. The engine
// asks a Kind; it has no switch over kinds. A Kind decides nothing and keeps no state.
package kind

import (
	"strings"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/resp"
)

// Kind is a kind of synchronizer.
type Kind uint8

// Family is the kinds that share a name: their locks are one lock, on the server and here. A
// name that an engine uses for one family cannot be used for another by it, meanwhile.
type Family uint8

// The families.
const (
	Hash    Family = iota // an RLock's: owners are the fields of a hash
	Queue                 // the same, and a queue that all must respect
	RW                    // an RReadWriteLock's: such a hash with a mode
	Permits               // a number, and ids in a sorted set
)

// String names what a name of the family is used for, for people.
func (f Family) String() string {
	return [...]string{Hash: "a Mutex", Queue: "a FairMutex", RW: "an RWMutex", Permits: "a PermitSemaphore"}[f]
}

// The kinds. Each has a row in the table.
const (
	Mutex Kind = iota
	Spin
	Fenced
	Fair
	Read
	Write
	Permit
	Kinds = iota
)

// row is what differs.
type row struct {
	name    string // as an Observer is told it
	channel string // the prefix of the channel where a release is announced, as Redisson has it; "": nowhere
	family  Family
	traits  lock.Traits // what the core needs to know
	suffix  string      // of its owners
	alone   bool        // it re-enters holds of this kind only; else, of its family
	wire
}

var table = [Kinds]row{Mutex: mutex, Spin: spin, Fenced: fenced, Fair: fair, Read: read, Write: write, Permit: permit}

// String returns the name, as an Observer is told it.
func (k Kind) String() string { return table[k].name }

// traits are those of the kinds, with their families.
var traits = func() (all [Kinds]lock.Traits) {
	for k := range all {
		all[k] = table[k].traits
		all[k].Family = uint8(table[k].family)
	}
	return all
}()

// Traits are what the core needs to know of each kind.
func Traits() []lock.Traits { return traits[:] }

// Traits is what the core needs to know of the kind.
func (k Kind) Traits() *lock.Traits { return &traits[k] }

// What is what its name is, for people; "": a lock.
func (k Kind) What() string { return table[k].traits.Noun }

// Family is the kinds that its name may be used for at the same time.
func (k Kind) Family() Family { return table[k].family }

// Owner is an owner of the kind.
func (k Kind) Owner(engine string, id int64) script.Owner {
	return script.Owner{Engine: engine, ID: id, Suffix: table[k].suffix}
}

// Reenters reports whether it re-enters a hold of the other kind.
func (k Kind) Reenters(other Kind) bool {
	if table[k].traits.Entries == lock.PerGrant {
		return false
	}
	return k == other || !table[k].alone && k.Family() == other.Family()
}

// Polls reports whether its waiters poll: then a release is announced nowhere.
func (k Kind) Polls() bool { return table[k].traits.Waiting == lock.Polling }

// Channel is where the release of a lock is announced, with a verb (PUBLISH and its
// relatives); the zero Channel if its waiters poll.
func (k Kind) Channel(lock, verb string) script.Channel {
	if k.Polls() {
		return script.Channel{}
	}
	return script.Channel{Prefix: table[k].channel, Lock: lock, Verb: verb}
}

// ValidInCluster reports whether the companions of a lock, its channel first, are in the slot of
// its key, as they must be in a cluster. If not, it also returns the name of one that is not.
// The braces of these names follow Redisson's rule, which looks for a { only: {}a, a{b, a}b{c}
// and a}b have tags that the key has not, or the other way round.
func (k Kind) ValidInCluster(lock string) (companion string, ok bool) {
	if k.Polls() || !strings.ContainsAny(lock, "{}") {
		return "", true
	}
	companion = k.Channel(lock, "").Name()
	return companion, resp.SlotOf(companion) == resp.SlotOf(lock)
}
