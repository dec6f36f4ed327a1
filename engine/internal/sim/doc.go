// Package sim runs engines in a world that one seed decides: time, timers, the network,
// a server, and the programs of several processes. Everything that decides in an engine
// runs for real (its state machines, its queues, the watchdog, the recovery); everything
// around it is a model, put in its place through package world.
//
// There is one goroutine and no real time. So the same seed gives the same story, event
// by event, and a seed that fails is a reproduction for ever. After each event the
// promises are checked against the server's own record; in the end, when the world is at
// rest, that nothing is left anywhere.
//
//	make sim                 fresh seeds for a minute (SIMTIME), as .ci/run does
//	make sim SIMSEED=42      the story of one, in words
//	make mutants             small changes of the engine, each of which must be found
//
// # Files
//
//	sim, run                 time, and what will happen
//	process, site, user      a process; an engine of it and its world; its users
//	conn, pubsub             connections: in order, cut at any point; what was sent is
//	                         executed late or never
//	server                   the server: the scripts, as decision tables;
//	                         differential_test compares it with real ones
//	faults, failover         what goes wrong; a replica that is promoted
//	check                    what must be true after each event, and at rest
//	mutants_list_test,
//	mutants_test             what it must find
//	story_test, testdata     stories
//
// # Worlds
//
// Programs take single locks, several as one, locks that poll and, in a third of the worlds,
// RedLocks over three servers. They re-enter, make contexts, abandon, and unlock twice. In a
// third of the worlds the servers have replicas, which lag behind and are promoted. A run has
// storms and lulls.
//
// What is a promise always (nobody believes to have what the server may give away) is
// checked always. What depends on servers that answer (a free name does not stay free while
// somebody waits; no owner stays that nobody has; an end is told in time) is checked half a
// minute into a lull.
//
// Two things look like faults and are not: a release that the server denies is not
// repeated, and an acquire that is executed more than a second after its connection died is
// given back a lease later.
//
// The order in which a map is walked is a source of chance. Whatever leads to commands is
// sorted, or a seed would not tell the same story twice.
//
// # Stories
//
// The journeys of DESIGN.md, and some races, are also written as stories, in testdata: what
// is done, and what is sent, told and left after it. They are run as tests, on
// github.com/cockroachdb/datadriven, in a world without chance: each way takes a
// millisecond. -rewrite writes their answers anew.
//
//	uncontended, contended            two commands; refused, subscribed, woken
//	lost_wakeup                       a release between the refusal and the subscription
//	not_sent, reply_cut, late_grant   a connection that is cut before and after the
//	                                  sending; a grant that is too late
//	abandoned                         an acquisition that is given up while its command
//	                                  is out
//	reentry                           a count of two, and what ends with the outer hold
//	taken_away, outage, killed        a hold that is lost: to somebody else, for want of a
//	                                  connection, with its process
//	failover                          a release that the new primary has not heard of
//
// # What is not modelled
//
// What lies below an engine: bytes, redirections, layouts. Those have tests of their own in
// resp. Nor does it run the blocking forms (Extend, State, Close): programs use futures. No
// context ends while a future waits for it. A server that fails over cuts all connections
// before anybody hears of it, and no old primary serves on.
//
// The idea is that of FoundationDB's simulator and of TigerBeetle's.
package sim
