package kind

import "github.com/pawl-lock/pawl/engine/internal/lock"

// fair is Redisson's RFairLock: the hash of an RLock, and a queue on the server. Each request has
// a place there of its own, also beside others of its process.
var fair = row{
	name:    "fair",
	channel: mutex.channel,
	family:  Queue,
	traits:  lock.Traits{Entries: lock.PerRequest, Waiting: lock.Queueing},
	wire:    hash,
}
