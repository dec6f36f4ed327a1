package request

import "errors"

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
	ErrNotSent        = errors.New("resp: command not sent")
	ErrOutcomeUnknown = errors.New("resp: connection lost after the command was sent, outcome unknown")
)

// Causes, wrapped beside ErrNotSent or ErrOutcomeUnknown.
var (
	// ErrDown means that the lane has no connection at the moment.
	ErrDown = errors.New("resp: no connection to the server")
	// ErrClosed means that the client was closed.
	ErrClosed = errors.New("resp: client is closed")
	// ErrLaneFull means that the lane's queue of bytes or commands is full.
	ErrLaneFull = errors.New("resp: too many commands in flight")
	// ErrUnwanted means that nobody waited any more for a request when its turn came (see
	// PatientRequest and DurableRequest).
	ErrUnwanted = errors.New("resp: nobody waits for it any more")
	// ErrTimeout means that the server sent nothing for CommandTimeout with commands
	// in flight, so the connection was given up.
	ErrTimeout = errors.New("resp: no answer within the command timeout")
)
