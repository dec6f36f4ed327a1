// Package keyview shows what a server has under a name, whatever synchronizer that is. The engine says
// who holds a lock, and what a count is; the queue of a fair lock, the counter of fencing tokens
// and the permits that are taken are looked at on a connection of its own, with commands that only
// read.
//
// It changes nothing, and says what a user may not see instead of failing. Keys that lie on the
// server for different reasons may look alike: Kind says which.
package keyview
