// Package watchdog is the watchdog: it raises the leases of many holds on the server, in cohorts, and
// reports to each hold the result of its renewal. It owns when a hold is renewed and with which others.
// It knows a hold as a [Renewable]; what its end means is the engine's to decide.
//
// A renewal has a connection of its own and waits for nobody. One order of renewals and of
// the commands of the names, across connections, would make the faster one wait.
//
// # When
//
// Members that fall due in the same quarter of a second, at the default lease, are a cohort.
// A hold is due after a third of the lease, give or take a tenth of that (JoinNext); the first
// time after a sixth to a third (JoinFirst). In a cluster a script has only locks of one
// slot. So there the holds of a slot share a beat of that slot, as long as they do not fill
// whole scripts (untilPhase). A script that failed is sent again after a pause that is short
// against the lease: a sixth of it for a single lock that the server refuses, and not only for now,
// else less.
//
// # Not obvious
//
//   - A late renewal must plan the next one by what is left of the lease, not by a third of
//     it. After a suspend, a third may end after the lease does (joinWithin).
//   - One key of a wrong type must not cost the 63 others their leases: renew.lua uses pcall
//     for each. A key that is refused for now must pause: one was once renewed 68,000 times
//     within a lease.
//   - What shares a script shares its refusal. So a script that is refused, but for now, is sent
//     again lock by lock, whatever the words (failed).
//   - One address may be many servers. A proxy of shards refuses a script of several slots, each
//     in words of its own. If it takes the locks one by one, a script has locks of one slot from then
//     on, until the connection is lost (accepted).
//   - A renewal in flight may have been executed before the event because of which a caller asks. So Now
//     sends another one after it.
package watchdog
