// Package wire is RESP2, the protocol of Redis and Valkey, as bytes: it appends
// commands and decodes replies and error lines. It knows nothing of sockets,
// connections or scripts, and can be imported alone.
//
// Decoding trusts nothing: every length is bounded, and input that is malformed is a
// [ProtocolError], never a panic. A [Value] borrows the bytes that it was decoded
// from.
package wire
