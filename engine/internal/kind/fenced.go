package kind

import (
	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/script"
)

// fenced is Redisson's RFencedLock: an RLock whose grants are counted. A tenure is one grant
// with one token, so it is passed on by a command, which makes the next one.
var fenced = row{
	name:    "fenced",
	channel: mutex.channel,
	traits:  machine.Kind{Passes: true},
	wire:    fencedWire(),
}

func fencedWire() wire {
	w := hash
	w.acquire, w.counts = script.AppendFencedNaming, true
	return w
}
