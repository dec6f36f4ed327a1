// Package quorum decides about n locks, its members, of which m are needed. A MultiLock needs all of
// them. A QuorumLock has one lock on each of several servers, and needs a majority. The package
// decides which members are tried, when enough have granted it, when everything is given back, when the
// whole is lost, and what the error says. Package lock decides about each lock. A grant of a member is a vote.
//
//	Asking --enough votes--> Holding --Unlock, or too few votes are certain--> Over
//	 |  ^
//	 |  +--its vote: the others are asked---+
//	 |                                      |
//	 +--too few: all is given back--> Waiting for one member
//	any but Holding --context, Wait, Abandon, Close, refused for good (TryLock: refused)--> Over
//
// One count of what the members have said decides an attempt, an Extend, an Unlock, and whether the whole is
// held (Count.Result); DESIGN.md has its table.
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
//   - If the server of a lock has no connection, it waits for that before it takes anything.
//   - The whole ends with its first lock. The others are held until Unlock.
//
// Majority, the policy of a QuorumLock (attempt.go, membership.go):
//
//   - The first attempt asks all servers at once.
//   - An attempt that cannot have a majority any more gives everything back. The contender then waits at
//     the first server that refused it, in the order of the addresses, as a Lock does, for 1 s at most.
//   - With the vote of that server it asks those behind it in the order.
//   - After two waits in vain it asks all at once again, so that a server that hangs, or that
//     somebody holds for long, decides nothing for longer.
//   - After a refusal it passes over a silent server after four of its round trips, at least 50 ms. It
//     still asks that server, but does not wait for the answer. Before the first refusal it waits for
//     all of them: the votes that it keeps are in nobody's way.
//   - While it is held the watchdog renews each vote, and asks a server that lost or missed the lock
//     again, at once and at each renewal. See Leave for why that is safe.
//   - When it is lost, the rest is given back at once.
//
// All contenders have the same order, and none waits while it keeps a vote. So they take turns at
// one server, and the contender that is farthest in the order wins. A contender that
// waits too far back for a majority behind it begins at the first server again: if it asked those before
// instead, two contenders could refuse each other again and again.
//
// # The package
//
// It is pure. It has no socket, no goroutine, no channel, no lock and no code of a user;
// time and randomness come from a Port. A transition is a call, made under the lock of the
// caller, with a Ready that lists what the caller does after it.
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
// late: it may be missing since its last renewal was sent. So a vote that joined after that
// does not count for the time before (Leave). Otherwise five servers that are emptied would be
// found empty one by one, and each be replaced in time. A late first answer is such a
// vote, too: until it came somebody else may have had the lock there. The answers of the
// first 250 ms count as one, or every uncontended lock would be verified. When a vote joins
// or is gone, the others are verified, so that this window is one round trip. A server
// that restarts without its data may be asked again at once: until then the vote was ours, so
// nobody else counts on it. If it was away for longer than our lease, its vote may have been
// somebody else's. The published algorithm has that condition for every grant:
// the server must stay away for a lease, or keep its data.
//
// ValidUntil is the least of the greatest ends that are a majority; each has the margin
// subtracted, or the drift of the algorithm if that is more (see package lock). So the
// hold needs no timer for its end: it ends with a vote.
//
// MaxHold bounds the whole: what joins later ends with it. A fixed lease is not renewed, so no server
// joins once the lock is held and all have been asked.
//
// Unlock waits for a majority of the releases: then others can have one. The rest
// continue as the release of any hold does. A lost hold gives the rest back at
// once, for it would only stand in the way of others.
//
// A closed engine is a decision of the process, not the loss of a server:
// acquisitions fail with ErrClosed, and a hold continues with the other engines.
package quorum
