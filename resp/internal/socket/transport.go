package socket

// A connection is dialled, and does its handshake, as a plain net.Conn with deadlines, no
// byte left unread. Then it is adopted: from there on its bytes flow through a
// transport, and its owner, a sink, gets them.
//
// There are two transports. The gnet one runs on an event loop shared by many
// connections; the std one has two goroutines, a reader and a writer, for
// everything gnet cannot do (TLS, Windows, connections of custom dialers). A
// sink is written against the rules below and works over both.

// Sink gets the events of one connection.
//
// OnOpen comes first and OnClose last, each exactly once; no event begins while
// OnOpen or OnClose runs, and none is nested in another. After a call of Close no
// event begins but OnClose, so a sink that has met bytes it cannot trust, or has
// panicked, is not given the bytes behind them. OnBytes never runs
// beside itself, and neither does OnWake; the two exclude each other on gnet
// only, because on std a write that blocks must not stop the reads (the server
// stops reading when nobody takes its replies, and then both ends wait for
// ever). So what OnWake shares with OnBytes needs a lock, which neither may hold
// across a call of the transport.
//
// A sink never blocks, apart from the Write in OnWake.
type Sink interface {
	// OnOpen hands over the transport, before Adopt returns.
	OnOpen(t Transport)
	// OnBytes brings bytes that arrived; b is borrowed until it returns.
	OnBytes(b []byte)
	// OnWake follows a Wake: write what is queued.
	OnWake()
	// OnClose says that the connection has ended, and why. From before it starts
	// no byte is taken any more, and Sent is final.
	OnClose(err error)
}

// Transport is the sending half of an adopted connection. Every method is safe
// on every goroutine, also after the end, unless it says otherwise.
//
// TryWrite and Write are for one writer at a time: the sink sees to it that no
// two of them run at once.
type Transport interface {
	// TryWrite offers b to the kernel and returns how much of it was taken, at
	// once. Less than len(b) without an error means "not now": Wake, and let
	// OnWake write the rest. The std transport always takes nothing here.
	TryWrite(b []byte) (n int, err error)

	// Write is for OnWake alone. It may block (std), or leave bytes in a buffer of
	// the transport and count them as taken (gnet). Taking less than len(b)
	// without an error means that this buffer has not run empty yet: the next
	// OnBytes is the time to try again, and it will come, since what lies in the
	// buffer ends a command that will be answered.
	Write(b []byte) (n int, err error)

	// Sent is the number of bytes taken so far, over TryWrite and Write. Once
	// OnClose has begun it is final, and the server cannot have received any byte
	// beyond it.
	Sent() uint64

	// Unread reports whether bytes lie in the socket that no OnBytes has been given:
	// the server has spoken, and it is this process that is behind. Where no socket
	// shows it (a dialer's own connection without SyscallConn, Windows) it says no.
	Unread() bool

	// Wake asks for an OnWake soon. Two calls may end in one OnWake, if it starts
	// after both.
	Wake()

	// Close ends the connection: nothing is written any more, and OnClose(err)
	// follows, with the err of the first call, or with what ended the connection
	// before it.
	Close(err error)
}
