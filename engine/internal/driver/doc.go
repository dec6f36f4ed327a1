// Package driver drives the entries of an engine's names (see package lock): it has the
// shards and their locks, sends the commands and reads the replies, sets the timers and subscribes
// to the channels. Every event becomes one transition under one shard's lock; its effects follow
// after the lock (see Table.Apply).
//
// A Grant has the place among the renewals, which it keeps when it is handed over. A TimedHold
// is one hold of it, and has the timer of its own end.
//
// What stands outside the order of the entries, an acquisition of several locks or a query, is Pending: it has
// what may end that, its context, its time, an outage and Close.
//
// It decides nothing about a lock, and knows no future, no Observer and no option. Package engine has
// these, and embeds the types of this package in its own.
package driver
