// Package replyreader reads replies, blocking, off connections that nobody else reads: those of a
// handshake, or those on which a deployment is asked for its layout. It also takes the
// replies apart.
package replyreader
