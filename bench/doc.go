// Package bench measures lock engines: Pawl itself for the command `pawl bench`,
// and other clients, through Client, for the comparison in bench/peers.
//
// Scenarios:
//
//	single       one goroutine, one name
//	uncontended  goroutines, each with a name of its own
//	hot          goroutines that contend for one name, and hand it over to each other;
//	             or processes that do, which the run starts
//	waiters      pending LockAsync futures on names that are held
//	held         holds under the watchdog
//
// The first three are closed loops: a goroutine locks, unlocks and starts again, so a
// slow server slows the load down too. Latency is that of a whole pair.
//
// # Files
//
//	run, config, client      what is measured: the engine, or another client
//	loop, worker             closed loops
//	engine_run, futures,
//	waiters, hold            scenarios that fill an engine, look at it, and empty it
//	processes, child,
//	process                  hot between processes: the coordinator, a process as it sees it,
//	                         and what a process does
//	server, counts, leaks    the server that is measured on; what it executed; what the run
//	                         left there
//	result, environment,
//	format, format_text      what was measured, and how it prints
//	internal/redisadmin      talks to the servers beside the measuring
//	internal/process         time, CPU, memory and goroutines of this process
//	internal/latency         histograms
//	internal/turns           how a lock went from process to process
//
// It takes locks only under names that begin with pawl-bench:, and changes nothing of an
// engine but its configuration.
//
// The API may change before v1.
package bench
