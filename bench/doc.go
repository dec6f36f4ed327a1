// Package bench measures lock engines: Pawl itself for the command `pawl bench`,
// and other clients, through Client, for the comparison in bench/peers.
//
// Scenarios:
//
//	single       one goroutine, one name
//	uncontended  goroutines, each with a name of its own
//	hot          goroutines that contend for one name
//	waiters      pending LockAsync futures on names that are held
//	held         holds under the watchdog
//
// The first three are closed loops: a goroutine locks, unlocks and starts again, so a
// slow server slows the load down too. Latency is that of a whole pair.
//
// The API may change before v1.
package bench
