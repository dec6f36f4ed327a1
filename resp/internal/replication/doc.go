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
package replication
