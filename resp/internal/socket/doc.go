// Package socket moves the bytes of connections after their handshake. [Loops] own the event loops,
// and what runs on them; a [Transport] is the sending half of one connection, and its
// owner, a [Sink], gets what arrives.
//
// It knows nothing of RESP, and runs no user code but the methods of a Dialer's own
// net.Conn.
//
// # Not obvious
//
//   - A failed write of a custom dialer's connection may still have been sent. Only
//     connections that count exactly (TCP, unix, TLS) may say "not sent".
//   - gnet waits for urgent data and never reads it. With SO_OOBINLINE it arrives with the
//     rest; without it one byte makes the loop spin.
package socket
