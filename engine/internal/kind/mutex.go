package kind

import "github.com/pawl-lock/pawl/engine/internal/lock"

// mutex is Redisson's RLock.
var mutex = row{
	name:    "mutex",
	channel: "redisson_lock__channel",
	traits:  lock.Traits{Waiting: lock.Racing, LocalHandOver: true, Batches: true},
	wire:    hash,
}
