package execlock

import (
	"slices"

	"github.com/pawl-lock/pawl/engine"
)

// Kind is what is held while the command runs.
type Kind string

// The kinds. A semaphore is an engine.PermitSemaphore, of which one permit is held: the permits of
// an engine.Semaphore have no lease, and would be lost with the machine.
const (
	Mutex     Kind = "mutex"
	Fair      Kind = "fair"
	Fenced    Kind = "fenced"
	Read      Kind = "read"
	Write     Kind = "write"
	Semaphore Kind = "semaphore"
)

// Kinds are the names of all of them.
func Kinds() []string {
	var names []string
	for _, k := range []Kind{Mutex, Fair, Fenced, Read, Write, Semaphore} {
		names = append(names, string(k))
	}
	return names
}

// Known reports whether there is such a kind.
func (k Kind) Known() bool { return slices.Contains(Kinds(), string(k)) }

// lock is the lock of a name. A semaphore has none.
func (k Kind) lock(e *engine.Engine, name string) engine.Mutex {
	switch k {
	case Fair:
		return e.FairMutex(name)
	case Fenced:
		return e.FencedMutex(name)
	case Read:
		return e.RWMutex(name).Reader()
	case Write:
		return e.RWMutex(name).Writer()
	}
	return e.Mutex(name)
}

// held is what is held, for people.
func (k Kind) held() string {
	if k == Semaphore {
		return "permit"
	}
	return "lock"
}
