// Package socket moves the bytes of greeted connections. [Loops] own the event loops,
// and what runs on them; a [Transport] is the sending half of one connection, and its
// owner, a [Sink], hears what arrives.
//
// It knows nothing of RESP, and runs no user code but the methods of a Dialer's own
// net.Conn.
package socket
