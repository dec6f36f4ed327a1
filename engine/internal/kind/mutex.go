package kind

import "github.com/pawl-lock/pawl/engine/internal/machine"

// mutex is Redisson's RLock.
var mutex = row{
	name:    "mutex",
	channel: "redisson_lock__channel",
	traits:  machine.Kind{HandsOver: true, Batches: true},
	wire:    hash,
}
