package kind

import (
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/script"
)

// fenced is Redisson's RFencedLock: an RLock whose grants are counted. A grant is one grant
// with one token, so it is not handed over.
var fenced = row{
	name:    "fenced",
	channel: mutex.channel,
	traits:  lock.Traits{Waiting: lock.Racing, Batches: true},
	wire:    fencedWire(),
}

func fencedWire() wire {
	w := hash
	w.acquire, w.counts = script.AppendFenced, true
	return w
}
