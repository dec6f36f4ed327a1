// Package sim runs engines in a world that one seed decides: time, timers, the network,
// a server, and the programs of several processes. Everything that decides in an engine
// runs for real (its state machines, its queues, the watchdog, the recovery); everything
// around it is a model, put in its place through package env.
//
// There is no real time, and one thing happens at a time: each goroutine of an engine or a
// program is a coroutine, which runs until it waits (thread.go). So the same seed gives the same story, event
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
//	thread                   goroutines, and what they wait for
//	process, site, user      a process; an engine of it and its world; its users
//	calls, closing           calls that block, and what is true of them; Close and Shutdown
//	conn, pubsub             connections: in order, cut at any point; what was sent is
//	                         executed late or never
//	kinds                    what is special about some kinds of locks; locks on several servers;
//	                         names that are used as two kinds
//	turns, readers, spins    fair order, and places in queues; readers beside each other; waiters that poll
//	reentry                  contexts of holds, re-entries, NonReentrant, and deadlocks
//	server                   a server; what it stores, and the scripts, are package model
//	faults, failover         what goes wrong; a replica that is promoted
//	cluster                  nodes, and slots that move between them
//	check                    what must be true after each event, and at rest
//	count, counter           semaphores and latches: their programs, and what must be true of
//	                         them
//	permit_user,             semaphores whose permits have leases: the same, and what others do
//	permit_calls             with them
//	mutants_list_test,
//	mutants_test,
//	compiles_test            what it must find; each is a change that compiles
//	story_test, testdata     stories
//
// # Worlds
//
// Programs take single locks of every kind, several mutexes as one and, in a third of the worlds, RedLocks and
// MultiLocks over three servers, of one kind in each world; they wait or use futures. In some worlds without
// replicas they share a semaphore and a latch, in some a semaphore whose permits have leases. They add permits,
// drain and set them, and give them back by force, and somebody deletes the semaphore. By the server's record
// no permit is lost or made, and what a program was answered was done once. They re-enter, also where that must
// be refused; they make contexts, abandon, and unlock twice; they extend leases, ask for the state of locks,
// and take them by force. They use names that their engine has in use as another kind, and are refused at once.
// One or two of the engines that wait for a Mutex or a FencedMutex race, and the others queue; an eighth of the
// worlds has more than three processes. Contexts of theirs end. Processes are paused, killed, closed and shut
// down. In two worlds of nine the server is a cluster, whose slots move, with sharded messages or plain ones.
// In a third of the others the servers have replicas, which lag behind and are promoted. A run has storms and
// lulls.
//
// In a third of the worlds that are no cluster programs also wait for a lock under another one, engines answer
// questions, and programs look for deadlocks. Each deadlock that is reported, possible ones included, was there
// at one moment of the look.
//
// A promise that holds always (nobody believes to have what the server may give away) is checked
// always. A promise that depends on servers that answer (a free name does not stay free while
// somebody waits; no owner stays that nobody has; an end is reported in time) is checked half a
// minute into a lull. A call that blocks is checked when it returns: that what it says is what the
// server did, or had at one moment in between, and that it came in time. After Close nobody
// believes to hold a lock or waits, and what Close says of the server is true.
//
// Each kind has a promise of its own. Waiters of a FairMutex are served in the order in which their first tries
// reached the server, unless a place may be lost: a try without an answer, a time in the queue that is over, a
// failover. A reader waits for others for 10 ms at most, at the end of a turn, and is not refused because of
// them. Tokens rise. Permits are conserved, and a latch opens once. A SpinMutex uses no channel, and its
// waiters poll as Backoff says. NonReentrant refuses the holder of the lock, at once, and nobody else.
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
//	extend, extend_refused,           an Extend that is granted, and not; one that is granted
//	extend_late, extend_lost          when the hold is over; one that a failover loses
//	long_reentry                      a re-entry with a longer lease than its hold
//	force                             a lock that is taken away, and one that perhaps was
//	handed_over, handed_over_told     a lock that goes from hand to hand, and another process
//	                                  that gets its turn; when contexts have ended
//	handed_over_removed               one that is taken away meanwhile: its holder is told
//	shutdown, close_in_doubt          the end of a process that has a hold; that of one whose
//	                                  release nobody has answered
//	moved, migration,                 a slot that has moved, and one that moves; a lock that
//	migration_force                   is taken away meanwhile
//	queued, queued_late,              engines that queue: called to the front; a join that runs late, an
//	queued_abandoned,                 owner that gives up
//	queued_front_dies,                the front, which dies or is stopped; the holder, which dies
//	queued_front_paused,
//	queued_holder_dies
//	queued_failover,                  a replica without the queue; a slot that moves
//	queued_migration
//
// # Faults that came up
//
// What was wrong in an engine once, and what fails here if it is again:
//
//	a release is sent while contexts of the hold are alive    mutant of entry.go: telling
//	a waiter behind a hold does not hear of its removal      story removed_behind_a_hold; mutant of entry.go
//	a removal that was announced while the channel was down   stories removed_unheard, removed_unheard_for_long
//	a look that waiters who come and go put off for ever      story removed_behind_a_spinner
//	a lease that a re-entry raised is forgotten in an outage  story long_outage
//	ValidUntil is in the future after the end                 stories force, taken_away; mutant of hold_end.go
//	a timer that comes late gives a release up                story late_timer
//	"held", though nobody has answered                        story not_answered
//	an Extend that is answered late brings a hold back        story extend_answered_late
//	an Unlock without an answer outlasts the lease            story unlock_unanswered
//	the MinHold of a re-entry is ignored                      story minhold_reentry
//	the longest MaxHold, or Wait, runs over                   story endless
//	a refusal pauses a name that the recovery lists           story refused_while_stalled
//	a grant counts that replicas lack                         mutant of acquire.go
//	a lock that was released is back after a failover         story failover; mutants of memory.go
//	a lock that is handed over is renewed no more             mutant of handover.go
//	a head that skipped its turn never tries                  machine: TestAConfirmationDoesNotStopTheAlarmOfASkippedTurn
//	a context is alive when the next of its process has it    story handed_over_told; check: "its process has given it"
//	a look at a latch waits for a slot that moves             counter: TestLooksDoNotWaitForASlotThatMoves
//
// Others lie below this world, or in code of users, and have tests where they lie:
//
//	a Mutex after a SpinMutex tells nobody    engine: TestMutex_HandedOverByASpinMutex_AnnouncesItsRelease
//	several slots behind one address          renew: TestAServerThatRefusesSeveralSlotsGetsThemOneByOne
//	a large cohort under one lock             renew: TestALargeCohortLocksTheRenewerForOneChunkAtATime
//	no right to publish; no memory            script: TestRefusedMessageIsReportedAndCostsNobodyTheRelease,
//	                                          TestServerWithoutMemoryRefusesNoGivingBack
//	causes that use the engine, or panic      internal/suite/callbacks: TestLock_CauseOfTheUser_IsNotCalledUnderALock,
//	                                          TestLock_CauseThatPanics_LeavesNoLockHeld
//	one that fails at once is not counted     engine: TestLock_FailsAtOnce_IsCountedAndReportedOnce
//	Close in a callback                       internal/suite/callbacks: TestClose_InACallbackOrHook_SaysThatNoLockIsLeft
//	a nil context                             engine: TestEngine_NilContext_IsInvalidAndLeavesNothing
//	releases behind acquires, on a full lane  pipeline: TestPipeline_Backlog_IsNotOvertaken;
//	                                          internal/suite/faults: TestAFullLaneSendsReleasesBeforeAcquires
//	a channel whose connection is half open   pubsub: TestEndpoint_Silent_IsPinged
//	"all" is what is attached just now        replication: TestNewReplicas_SeveralSources_TheMostCounts
//
// # What is not modelled
//
// What lies below an engine: bytes, and how resp learns a layout; a command is sent on at most
// five times here. Those have tests of their own in resp. Nor does it run Await and Do. A
// server that fails over cuts all connections before anybody hears of it, and no old primary
// serves on. Where servers have replicas, nobody takes the read-write lock: which of its leases a
// failover has shortened is not modelled, nor are keys of one slot at two nodes. MultiLocks on one
// server are of mutexes, and nothing that is not a number takes the name of a semaphore.
// A cluster has no replicas, and all of its clients announce releases in the same
// way.
//
// The idea is that of FoundationDB's simulator and of TigerBeetle's.
package sim
