// Package topology finds out who serves what in a deployment: a cluster, sentinels, or
// servers that are promoted by hand. An [Explorer] keeps the routes of a [Client] true.
// What it finds is a [Layout]: which primary serves which slots, and the [Groups] of
// primaries with their replicas.
//
// It has connections of its own, made by a [Reach], and knows nothing of those that carry
// commands.
//
//	Explorer    when to search, and what to do with the outcome     explorer, schedule
//	Slots       which node serves which slot, read without a lock   slots
//	Groups      a primary with its replicas, promoted or away       groups
//	redirect    what follows from a refusal                         redirect
//	finder      one search: a cluster, sentinels, servers           cluster, cluster_nodes, sentinel, sentinel_watch, replicas
//	succession  which of several primaries is the one               succession, standing
//	inquiry     the candidates are asked, each a moment after the
//	            one before; the first good answer wins, or all      inquiry, address, address_map
//	scouts      the connections, who owes an answer, who is late    scouts, scout, latecomers
package topology
