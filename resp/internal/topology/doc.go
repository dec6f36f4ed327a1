// Package topology finds out who serves what in a deployment: a cluster, sentinels, or
// servers that are promoted by hand. An [Explorer] keeps the routes of a [Client] true.
// What it finds is a [Layout]: which primary serves which slots, and the [Groups] of
// primaries with their replicas.
//
// It has connections of its own, made by a [Reach], and knows nothing of those that carry
// commands.
//
//	Explorer          when to search, and what to do with the outcome     explorer, schedule
//	Slots             which node serves which slot, read without a lock   slots
//	Groups            a primary with its replicas, promoted or away       groups
//	redirect          what follows from a refusal                         redirect
//	finder            one search: a cluster, sentinels, servers           cluster, cluster_nodes, sentinel, sentinel_watch, replicas
//	Identity          whom the servers are believed to be                 identity
//	failoverResolver  which of several primaries is the one               failover, replication_info
//	hedge             the candidates are asked, each a moment after the
//	                  one before; the first good answer wins, or all      hedge, address
//	probes            the connections, outstanding answers, slow servers  probes, probe, slow
//
// # A search
//
// Searches are at least a quarter of a second apart. A lost connection and each failed dial
// start one. While a connection is missing there is one every second, since a machine that
// vanishes says nothing. Several servers are asked at a time (askFirst): the next when one
// has failed or after 300 ms; one that was overtaken lately comes last. A search waits a second for silent servers; connecting to them
// goes on, for the next search.
//
// Where replicas are promoted by hand, the master with most connected replicas is the primary:
// see failoverResolver.
//
// # Whose servers
//
// Addresses that were learnt may be somebody else's by now. [Identity] is the one place that knows
// by which ids the servers of the deployment are known. All searches ask it before they believe a
// layout (believes, apart), each connection that carries commands, renewals or messages asks it
// before it is used (Meet), and the watch does not listen to sentinels that are foreign.
//
// # Not obvious
//
//   - A search that ends early must not waste what it has begun. If a dial takes longer than
//     a search waits, the connection is there for the next search.
//   - Silence is neither a vote nor an abstention: a primary that is far away answers later
//     than a stale one nearby. So a primary without replicas has to wait for the silent
//     servers (undisputed). A server that is loading answers ROLE, but not PING.
//   - A refusal is no silence. Silence of a server begins with the first question after its
//     last word. With a clock that ran on while it said "full" or nobody asked, a primary
//     that had just been full was taken for gone.
//   - One server under two names is one primary. Its primary sees a replica by one address,
//     and the configuration has another; behind NAT that address is another server's. So
//     servers that are promoted by hand are told apart by their replication ID, never by name
//     (masters). It also says whose data a primary continues. That decides nothing: a replica
//     that restarts without its REPLICAOF looks as if it had been promoted.
//   - After a failover on command two servers say that they are the primary, until the
//     sentinels demote the old one. A sentinel that is behind still names it. The config
//     epoch tells which is later (behind). It counts only as long as the present primary is
//     not gone, because sentinels that are set up anew count from 0.
//   - A present primary of a later epoch is gone if it refuses, if it says that it is none,
//     or if it has not answered for DialTimeout. That it has not answered within one search
//     says nothing, nor does a refusal because it is loading, busy or full (postponed).
//   - A server that may be the primary of a later epoch is waited for before a sentinel of an
//     earlier epoch is believed (overtaken). A new primary is slow or full just when all
//     clients come to it.
//   - An announcement is checked with the sentinel that made it (candidates). For all other
//     looks the sentinels take turns, because one of them may be cut off. Where they do not
//     tell their epochs the client stays with one of them as long as that answers.
package topology
