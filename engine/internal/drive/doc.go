// Package drive drives the machines of an engine's names (see package machine): it has the
// shards and their locks, sends the commands and reads the answers, sets the timers and hears
// the channels. Every event becomes one transition under one shard's lock; what the
// transition leaves to be done is done after it (see Table.Run).
//
// A Tenure has the place among the renewals, which it keeps when it is handed over. A Holding
// is one hold of it, and has the timer of its own end.
//
// It decides nothing about a lock, and knows no future, no hook and no option: what users
// touch is package engine's, which embeds the nouns of this one in its own.
package drive
