package kind

import "github.com/pawl-lock/pawl/engine/internal/lock"

// spin is Redisson's RedissonSpinLock: the hash of an RLock, and nothing is announced.
var spin = row{
	name:   "spin",
	traits: lock.Traits{Waiting: lock.Polling, LocalHandOver: true, Batches: true},
	wire:   hash,
}
