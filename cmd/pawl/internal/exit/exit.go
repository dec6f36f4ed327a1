package exit

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
)

// Exit codes, after sysexits.h where it has a fitting one, and shells.
const (
	Failed      = 1
	Usage       = 64
	Server      = 69
	NotAcquired = 75
	Lost        = 76

	NotExecutable = 126
	NotFound      = 127
)

// Error is an error that says which exit code it means. Without Err nothing is
// printed.
type Error struct {
	Code   int
	Err    error
	Signal syscall.Signal // if not 0: the process ends by it, if it can, as its command did
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Usagef is a mistake on the command line; the text says where to read on.
func Usagef(cmd *cobra.Command, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	return &Error{Code: Usage, Err: fmt.Errorf("%s (see %s --help)", text, cmd.CommandPath())}
}

// Code maps what a command returned.
func Code(err error) int {
	var coded *Error
	var signalled *SignalError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &signalled):
		return signalled.code()
	case errors.As(err, &coded):
		return coded.Code
	case errors.Is(err, engine.ErrInvalid) && !errors.As(err, new(*resp.ServerError)): // as of a channel
		return Usage
	case errors.Is(err, engine.ErrUnavailable), errors.Is(err, engine.ErrWrongType),
		errors.Is(err, engine.ErrOutcomeUnknown), errors.Is(err, engine.ErrNotAcked), errors.Is(err, engine.ErrGrantTooLate),
		errors.Is(err, redistest.ErrNotInstalled), errors.As(err, new(*resp.ServerError)):
		return Server // nobody else has the lock
	case errors.Is(err, engine.ErrLost):
		return Lost
	case errors.Is(err, engine.ErrNotAcquired):
		return NotAcquired
	}
	return Failed
}

// DeathSignal is the signal that the process must end by, 0 if it just exits. A shell
// looks at it: a script is interrupted only if what it runs died of the interrupt.
func DeathSignal(err error) syscall.Signal {
	var coded *Error
	var signalled *SignalError
	switch {
	case errors.As(err, &coded):
		return coded.Signal
	case errors.As(err, &signalled):
		if s, ok := signalled.Signal.(syscall.Signal); ok && Interrupts(s) {
			return s
		}
	}
	return 0
}

// Interrupts reports whether s is a signal that ends whatever runs on a terminal.
func Interrupts(s syscall.Signal) bool { return s == syscall.SIGINT || s == syscall.SIGQUIT }

// Text is what is printed of an error, on one line; "" for nothing.
func Text(err error) string {
	var coded *Error
	if err == nil || errors.As(err, &coded) && coded.Err == nil {
		return ""
	}
	text := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "engine: "), "\n", "; ")
	text = strings.Replace(text, ": engine: ", ": ", 1) // $PAWL_URL: engine: ...
	text = strings.ReplaceAll(text, "; engine: ", "; ") // of several servers
	if errors.Is(err, engine.ErrWrongType) {
		text += "; use another name, or delete the key if nobody needs it"
	}
	return text
}
