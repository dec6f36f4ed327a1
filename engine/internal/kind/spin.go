package kind

// spin is Redisson's RedissonSpinLock: the hash of an RLock, and nothing is announced.
var spin = row{name: "spin"}
