package kind

// mutex is Redisson's RLock.
var mutex = row{name: "mutex", channel: "redisson_lock__channel"}
