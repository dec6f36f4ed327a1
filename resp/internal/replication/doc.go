// Package replication sends requests that replicas must acknowledge, in groups, each with one
// WAIT. A [Lane] does so over a plain lane of its own, for one primary. How many of its
// replicas are there, how many acknowledgements are worth waiting for, and what a WAIT means
// for each request of its group, is decided by replicas and [HighWater], whose functions look
// at no clock and at no connection.
//
//	Lane       a queue, one group in flight, the next WAIT        lane
//	Member     a request on its way, perhaps to another primary   member
//	group      requests that share a WAIT; ROLE and WAIT          group
//	replicas   who is there, what is worth waiting for, what a
//	           WAIT means for a request                           replicas
//	HighWater  the most replicas that were there lately           highwater
//
// It connects nothing, and knows no routes and no layout: who keeps the list of replicas, and
// when it is asked for, is its owner's ([Config]). It has no goroutine and no timer; it runs
// on those that submit and on the event loops of the plain lane, and never blocks.
//
// "All replicas" is the largest of three numbers: those that ROLE lists, the most that were attached
// lately, and those that the deployment knows of.
//
// # Not obvious
//
//   - WAIT counts only for its own connection, by the offset after the last command of that (from
//     Redis 7.2 on, after the last command that changed something). On another connection, or after a
//     script that changed nothing, every replica satisfies it at once, and it proves nothing. So a
//     group keeps its connection, and renew.lua also writes leases that it need not raise.
//   - A script that was sent again (NOSCRIPT) is executed after the WAIT of its group. So a WAIT covers
//     only commands that were answered before it was sent.
//   - The server would execute a request behind a WAIT a second later, long after the connection was
//     given up. So one group is in flight, and its WAIT is sent last.
//   - ROLE lists a newly attached replica before the primary sends it anything: until the first report
//     of the replica, up to a second later, it acknowledges nothing.
//   - A failover on command detaches the replica that it promotes, and the old primary continues for a
//     second or more. All replicas that ROLE lists then acknowledge. So "all" comes from the servers
//     that decide about promotions, too.
package replication
