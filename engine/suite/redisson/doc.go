// Package redisson is the suite of the wire that Pawl shares with Redisson: what each of
// its own tests proves of a lock there (the catalogue), proved here on a standalone server
// and on a cluster, and a peer that sends what Redisson sends, byte for byte, to the same
// server. It needs a redis-server (see internal/redistest):
//
//	go test ./engine/suite/redisson
package redisson
