// Package sim runs engines in a world that one seed decides: time, timers, the network,
// a server, and the programs of several processes. Everything that decides in an engine
// runs for real (its state machines, its queues, the watchdog, the recovery); everything
// around it is a model.
//
// There is one goroutine and no real time. So the same seed gives the same story, event
// by event, and a seed that fails is a reproduction for ever. After each event the
// promises are checked against the server's own record; in the end, when the world is at
// rest, that nothing is left anywhere.
//
// What it does not model is what lies below an engine: bytes, redirections, layouts,
// replicas. Those have tests of their own in resp. Nor does it run the blocking forms:
// programs use futures.
//
// The idea is that of FoundationDB's simulator and of TigerBeetle's.
package sim
