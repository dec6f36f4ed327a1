// Package model is a model of a Redis server, as far as the engine sees it: the keys that the
// scripts of package script use, what each of these scripts does to them, and what it answers. It
// knows nothing of connections, slots, replicas or faults: package sim has those.
//
// A Keyspace is not for several goroutines at the same time. Time is given to it; it has none of
// its own.
//
// What it does is compared with real servers: the same random calls, in the same order, must have
// the same answers, keys, expiries and messages.
//
//	keyspace           keys, with their expiry
//	execute            which script a command calls
//	lock, rw, fair,    the scripts of each kind of synchronizer, as decision tables; they
//	counter, permit      follow the Lua line by line
//	differential_test  the comparison; permit_test has that of a PermitSemaphore
package model
