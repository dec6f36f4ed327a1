// Package script holds the Lua that runs on the server and encodes its calls. It owns what is
// written to a lock's key. It sends nothing, and knows neither holds nor waiters.
//
// Every script carries the state that holds afterwards, never a delta, so
// each may be repeated, early or late. The one exception is acquire on an absent
// key, whose owner is therefore used for one attempt only. The operations of counter, on counts
// without owners, are deltas: it keeps a mark of the latest command, with its answers.
//
// # Not obvious
//
//   - Replies are integers, or arrays of them, never nil: a nil truncates an array.
//   - The first write of a script is the one that the server may refuse (out of memory,
//     read-only), so refused means untouched. In those that give a lock back it needs no
//     memory, and then none of them is refused for want of it.
//   - A script may still be refused in its middle: a right may be missing for its second
//     command. So what is done first must do no harm alone: the expiry comes before
//     the owner (retire.lua), and a new owner without an expiry is taken out again
//     (acquire.lua). And PEXPIRE with 1 ms may delete the key, on Redis 7.0: what is written
//     after it must not make a new one.
//   - Scripts declare only the lock's key; the channel is an argument. A second key makes
//     releases fail with TRYAGAIN while a cluster moves the slot. That of counter, the mark, is
//     the price of deltas, and what only looks does without it.
//   - A script that catches errors hides READONLY, which has to start a search for the
//     primary, and MISCONF, NOREPLICAS and missing rights, which say why holds are about to
//     be lost. So renew.lua, which uses pcall for each key, passes them on.
//   - MinHold: retire.lua leaves the key its remaining time, and also gives the field another
//     owner's name, one that nobody is (uuid:-number), and publishes. Otherwise a late copy
//     of a renewal would make the rest longer, and waiters would sleep until the old expiry.
package script
