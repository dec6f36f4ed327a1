// Package counters is the internal/suite of semaphores and latches against real servers: connections that
// are cut, servers that are away, clusters whose slots move. It needs a redis-server (see
// internal/redistest). PAWL_HISTORY_SEED is the seed of the histories.
package counters
