package resp

import (
	"github.com/pawl-lock/pawl/resp/internal/handshake"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/topology"
	"github.com/pawl-lock/pawl/resp/wire"
)

// Every failure of a Request is of one of three kinds, and the kind decides
// what the caller may do next:
//
//   - not sent: the kernel never accepted the command's last byte, so no server
//     can have executed it; it may be repeated freely. errors.Is(err, ErrNotSent).
//   - outcome unknown: the command was written and the connection died before
//     its reply; the server may have executed it, may yet execute it, or never
//     will. errors.Is(err, ErrOutcomeUnknown).
//   - refused: the server answered with an error. errors.As(err, **ServerError).
var (
	ErrNotSent        = request.ErrNotSent
	ErrOutcomeUnknown = request.ErrOutcomeUnknown
)

// Causes, wrapped beside ErrNotSent or ErrOutcomeUnknown.
var (
	// ErrDown means that the lane has no connection at the moment.
	ErrDown = request.ErrDown
	// ErrClosed means that the client was closed.
	ErrClosed = request.ErrClosed
	// ErrLaneFull means that the lane's queue of bytes or commands is full.
	ErrLaneFull = request.ErrLaneFull
	// ErrUnwanted means that nobody waited any more for a request when its turn came (see
	// PatientRequest and DurableRequest).
	ErrUnwanted = request.ErrUnwanted
	// ErrTimeout means that the server sent nothing for CommandTimeout with commands
	// in flight, so the connection was given up.
	ErrTimeout = request.ErrTimeout
)

// What keeps a Client from connecting.
var (
	// ErrSentinelAuth means that a sentinel does not accept the credentials. Sentinels use
	// Config.SentinelUsername and SentinelPassword, not those of the servers.
	ErrSentinelAuth = topology.ErrSentinelAuth

	// ErrTooOld means that the server's version is not supported.
	ErrTooOld = handshake.ErrTooOld

	// ErrTLSMismatch means that one side speaks TLS on a port and the other does not.
	ErrTLSMismatch = handshake.ErrTLSMismatch

	// ErrDial means that an address could not be dialled: no connection came about.
	ErrDial = handshake.ErrDial

	// ErrHandshake means that a connection came about, and the handshake failed.
	ErrHandshake = handshake.ErrHandshake
)

// ErrProtocol means that the server sent bytes that are not RESP2, or a reply that
// nobody asked for; the connection was closed.
var ErrProtocol = wire.ErrProtocol

// ServerError is an error reply: the server received the command and refused it. Code is
// the first word, such as "WRONGTYPE", and Message the whole text.
type ServerError = wire.ServerError

// Refusal is what a ServerError says beside its text: of what (Of), whether the command may have
// been executed nevertheless (Executed), and for how long (Lasts). The zero Refusal is that of a
// text that nobody foresaw. See the table in resp/internal/request.
type Refusal = request.Refusal

// Perhaps is Refusal.Executed of a command that may have been executed in part.
const Perhaps = request.Perhaps

// RefusalOf looks up what e says. It may be called on an event loop.
func RefusalOf(e *ServerError) Refusal { return request.RefusalOf(e) }

// Value is a server's answer: its Kind says whether to look at Int, at Bytes, or, with Len
// and Each, at the elements. Package wire has the kinds, and the encoding of commands.
type Value = wire.Value

// Lasting reports whether an error that keeps a Client from connecting stays until somebody
// changes the configuration of the client or of the server.
func Lasting(err error) bool { return handshake.Lasting(err) }

// Unclear reports whether a server refuses a password because it has none. That is a mistake, or
// the server is still being set up.
func Unclear(err error) bool { return handshake.Unclear(err) }
