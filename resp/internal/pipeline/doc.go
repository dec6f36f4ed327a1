// Package pipeline sends commands and matches replies. A [Lane] is a stream of commands
// to one server that outlives its connections; a [Pipeline] is one of these. It decides
// what is known of a command when its connection dies: not sent, or outcome unknown.
//
// It knows no slots, no nodes and no layout: what a server refuses because the slot is
// elsewhere, it hands to [Config.Redirect].
//
// # Not obvious
//
//   - A full connection is a queue, not a back-off (admit). When each name backed off by
//     itself, there was no order, and releases starved.
//   - A command that waits long does not mean that the server hangs. With 10,000 in flight
//     the last one waits for the others, and under load the answers stay in the socket until
//     the event loop reads them. Connections were once given up for that. What was in flight
//     went out again, and a process that had been busy lost 85 of 100 holds. What counts is
//     silence: nothing arrived, nothing unread in the socket, nothing in work (examine).
//   - Our own pause is not the server's silence. After SIGSTOP or a suspend every command
//     looks overdue although its answer is already in the socket. So a gap is left out of
//     every age.
//   - So is our own lateness. Housekeeping, in package resp, yields before it looks, and
//     leaves what it waited out of every age. Code that looks at a connection from outside
//     looks twice (checkAge).
//
// # What did not help
//
//   - Writing inline at a depth of 48 instead of 8: more writes per command, up to half the
//     throughput at 32 callers. Never writing inline was as good from 32 callers on and costs
//     a wake-up below.
//   - runtime.Gosched of the loop before it drains: fewer writes, but with every CPU busy the
//     loop queues once more behind the others, and the slowest percent waits half as long
//     again.
//   - An entry with a channel for each command; two buffers swapped by the writer; one write
//     per command: see [Pipeline].
//   - For less CPU at 64 callers on 4 processors (10 us a pair, where one processor takes
//     3.5 us: the rest is the Go scheduler's waking and stealing, spread thinly over the
//     profile), none of these moved it by more than the noise: waking the callers only after
//     the whole batch was handled and drained; the first caller above the inline depth
//     yielding once and then writing for all; delaying that write by 10 to 100 us (from 50 us
//     on, throughput falls); the net.Conn transport instead of gnet (5 to 15 % more CPU); no
//     garbage collector; encoding into a pooled buffer outside the pipeline's lock (5 paired
//     runs: median 1.15 x the throughput of rueidis instead of 1.18 x, at 0.69 to 0.70 x its
//     CPU).
package pipeline
