// Package quorum decides about n locks of which m are needed, its members. Of a MultiLock all are
// needed; a QuorumLock has one lock on each of several servers, and needs a majority. The package
// decides which are asked, when enough have granted it, when everything is given back, when the whole
// is lost, and what the error says. Package lock decides about each lock. A grant of a member is a vote.
//
//	Asking --enough votes--> Holding --Unlock, or too few votes are certain--> Over
//	 |  ^
//	 |  +--its vote: the others are asked---+
//	 |                                      |
//	 +--too few: all is given back--> Waiting for one member
//	any but Holding --context, Wait, Abandon, Close, refused for good (TryLock: refused)--> Over
//
// # The verdict
//
// What the members have said so far decides an attempt (Count.Result), and in the same way an Extend,
// an Unlock, and whether the whole is held. Of n members, m are needed:
//
//	granted by m or more                                     Won
//	refused for good by more than n-m                        Denied: any attempt would be
//	granted, or not answered yet, by fewer than m            Lost: this attempt
//	else                                                     Pending
//
// # Two policies
//
// Neither policy waits for a lock while it keeps a vote: two calls that want the same locks do not wait
// for each other.
//
// All, the policy of a MultiLock (all.go):
//
//   - An attempt tries all locks at once that are not held, and is decided when all have answered. So the
//     error names the lock that matters most.
//   - After a refusal it gives everything back, and waits for the lock that refused it, as long as the call
//     may. With its vote it tries the others.
//   - Calls may refuse each other again and again. So from the second refusal on it pauses before it waits,
//     for a random time.
//   - A lock whose server has no connection is waited for before anything is taken.
//   - The whole ends with its first lock. The others are held until Unlock.
//
// Majority, the policy of a QuorumLock (attempt.go, membership.go):
//
//   - The first attempt asks all servers at once.
//   - An attempt that cannot have a majority any more gives everything back. The contender then waits at
//     the first server that refused it, in the order of the addresses, as a Lock does, for 1 s at most.
//   - With the vote of that server it asks those behind it in the order.
//   - After two waits in vain it asks all at once again, so that a server which somebody keeps, or
//     which hangs, decides nothing for longer.
//   - Once a server has refused it, a silent one is passed over after four of its round trips, and
//     50 ms at least. Until that answers it is asked, but not waited for. While nobody has
//     refused, all are waited for: the votes that are kept are in nobody's way.
//   - While it is held the watchdog renews each vote, and a server that lost or missed the lock is asked
//     again, at once and at each renewal. See Leave for why that is safe.
//   - When it is lost, the rest is given back at once.
//
// All contenders have the same order, and none waits while it keeps a vote. So they take turns at
// one server, and of several the one that is farthest in the order wins. Where a contender
// waits too far back for a majority behind it, it begins at the first again: if it asked those before
// instead, two contenders could refuse each other again and again.
//
// # The package
//
// It is pure. It has no socket, no goroutine, no channel, no lock and no code of a user;
// time and randomness come from a Port. A transition is a call, made under the lock of the
// caller, with a Ready that takes what is to be done once that is given up.
//
// The engine owns what is not pure: the acquisitions and holds of the members, the timer, the
// future, the contexts, the texts of errors. It decides nothing about votes.
//
// What happens, and what is called for it:
//
//	Lock, TryLock                  Begin
//	a grant or a refusal           Reply
//	the timer                      Tick
//	a MultiLock is given back      GivenBack
//	a context, Wait, Close         Cancel
//	the hold of a vote has ended   Leave
//	the hold is asked              Check and Expired, Until
//	Unlock                         Release
//
// Start reading with Machine, which has the invariants, and Count, which has the verdict.
//
// # Why
//
// Why a vote may be replaced while the lock is held. Nobody else can have a
// majority as long as, at every moment, a majority of the servers has the lock for us; since
// when each has it does not matter. But a lost vote is noticed
// late: it may be missing since its last renewal was sent. A vote that joined after that
// does not count for the time before (Leave), or five servers that are emptied would be
// found so one by one, and each be replaced in time. A first answer that is late is such a
// vote, too: until it came somebody else may have had the lock there. The answers of the
// first 250 ms count as one, or every uncontended lock would be looked at. When a vote joins
// or is found gone, the others are looked at, so that this window is one round trip. One
// that restarts without its data may be asked again at once: until it did it was ours, so
// nobody else counts on it. If it was away for longer than our lease, its vote may have been
// somebody else's. That is the condition that the published algorithm has for every grant:
// it must stay away for a lease, or keep its data.
//
// ValidUntil is the least of the greatest ends that are a majority; each has the margin
// subtracted, or the drift of the algorithm if that is more (see package lock). So the
// hold needs no timer for its end: it ends with a vote.
//
// MaxHold bounds the whole: what joins later ends with it. A fixed lease is not renewed, so no server
// joins once the lock is held and all have been asked.
//
// Unlock waits for as many releases as a majority: then others can have one. Those that are
// left go on as the release of any hold does. A hold that was lost gives the rest back at
// once, for it would only stand in the way of others.
//
// An engine that is closed is a decision of the process, not the loss of a server:
// acquisitions fail with ErrClosed; a hold goes on with the others.
package quorum
