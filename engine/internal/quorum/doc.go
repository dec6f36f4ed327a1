// Package quorum is what decides about one lock on several servers: whom to ask, when there is a
// majority, when to give back, and when it is lost. A grant of one of the servers is a vote.
//
//	asking --a majority of votes-----------------------------> holding --Unlock, or too few
//	 ^  ^ |                                                      |     votes are certain
//	 |  | +--no majority, but the referee's vote--> pausing--+   v
//	 |  +----------------------------------------------------+  over
//	 |    |                                                      ^
//	 |    +--neither: votes are given back------> blocked        |
//	 +--a vote, or nothing new for too long---------+            |
//	any but holding --context, Wait, Abandon, Close, refused for good (TryLock: refused)
//
// A round asks all servers without a vote, each once, all at the same time. If several do
// that, it may be that each has some votes and nobody enough. Then the referee decides: the
// first server, in the order of the addresses, that is not away. The one with its vote keeps what
// there is, and asks for the rest again after a pause of random length. The others give all
// back, and wait at the referee, as a Lock waits; with its vote they ask for the others. So
// they take turns at one server instead of taking votes from each other. The pauses end: two
// that see different servers away have different referees.
//
// A waiter at one server must not be held up by it, if it hangs or its owner has no more than a
// minority. So now and then another server is asked; and if that grants its vote, all are. Then
// the server that it waits at is nobody's referee: its owner has had it for long.
//
// While it is held, it wants the lock where it has no vote, as a Lock does: a server that was
// slow or down joins, and one that lost the lock is asked again. See Leave for why that is
// safe.
//
// The package is pure. It has no socket, no goroutine, no channel, no lock and no code of a user;
// time and randomness come from a Port. A transition is a call, made under the lock of the
// caller, with a Deeds that takes what is to be done once that is given up.
//
// The engine owns what is not pure: the acquisitions and holds at the servers, the timer, the
// future, the contexts, the texts of errors. It decides nothing about votes.
//
// What happens, and what is called for it:
//
//	Lock, TryLock                  Begin
//	a grant or a refusal           Told
//	the timer, Deeds.Look          Rang, Asked and Look
//	a context, Wait, Close         Cancel
//	the hold of a vote has ended   Leave
//	a waiter before it has left    First
//	the hold is asked              Check and Expired, Until
//	Extend, Unlock                 Extended, Release
//
// Start reading with Machine, which has the invariants, and its method next.
//
// # Why
//
// Why a referee. The published algorithm retries after a random delay. Waiting at every
// server instead, and yielding after a random time, was measured: with 12 callers of 4
// processes a vote that is given back goes to a contender that has none, and a section took
// 140 ms, with a server down 300 ms and more. So contenders take turns at one server, in the
// order of the addresses, and only the contender with its vote asks for the others: 1 to 3
// ms. It is not a single point: the first server that answers in good time is the referee,
// and two contenders that see different ones end by their random pauses. That an earlier
// server has not answered yet must not make the next one the referee: two then had
// referees of their own, kept what they had, and 12 callers stood still for seconds. A server
// that it waits at is none: beside a minority owner of the first server contenders had no referee,
// and took the others from each other. It pauses only if there is somebody to ask after that:
// else all pauses were over before a far server had answered.
//
// Why it asks another server now and then. A waiter at one server must not depend on it: its
// release may never be executed. Of those in a process that wait there, only the first asks
// often (every 250 to 500 ms, but not faster than a majority answers), and the next when that one
// has left (First). If a majority
// has granted it, though not within one round, it asks all again at once, a few times:
// servers that are far apart answer too late for each other (almost). A round waits for as
// long as the vote took that began it; if votes came too late for each other, for as long as a
// majority took (expected). It does not wait longer: a slow server may not be needed, and the
// votes that are kept meanwhile are missing to somebody else (resume). Nor does it wait for
// one that is known to be away (next). The one with the referee's vote waits so, too, when its
// pauses are over. In virtual time, with a minority that stays held and round trips of up to
// 480 ms, each different, 100,000 locks took 0.9 round trips of the slowest server that is needed
// in the median, and 4.7 at most. Without this some were not granted within a minute. Two to six
// contenders beside such an owner took turns every 4.5 round trips in the mean (150 to 390 ms), and
// every 6.5 without the rules for referees, pauses and probes above.
//
// Whether a server may be asked again while the lock is held. Nobody else can have a
// majority as long as, at every moment, a majority of the servers has the lock for us; since
// when each has it does not matter. So a vote may be replaced. But a lost vote is noticed
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
// subtracted, or the drift of the algorithm if that is more (see package machine). So the
// hold needs no timer: it ends with a vote.
//
// Fixed leases and MaxHold bound the whole: what joins later ends with it.
//
// Unlock waits for as many releases as a majority: then others can have one. Those that are
// left go on as the release of any hold does. A hold that was lost gives the rest back at
// once, for it would only stand in the way of others.
//
// An engine that is closed is a decision of the process, not the loss of a server:
// acquisitions fail with ErrClosed; a hold goes on with the others.
package quorum
