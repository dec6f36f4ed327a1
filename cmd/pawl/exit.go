package main

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
	exitFailed      = 1
	exitUsage       = 64
	exitServer      = 69
	exitNotAcquired = 75
	exitLost        = 76

	exitNotExecutable = 126
	exitNotFound      = 127
)

// exitError is an error that says which exit code it means. Without err nothing is
// printed.
type exitError struct {
	code   int
	err    error
	signal syscall.Signal // if not 0: the process ends by it, if it can, as its command did
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usagef is a mistake on the command line; the text says where to read on.
func usagef(cmd *cobra.Command, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	return &exitError{code: exitUsage, err: fmt.Errorf("%s (see %s --help)", text, cmd.CommandPath())}
}

// exitCode maps what a command returned.
func exitCode(err error) int {
	var coded *exitError
	var signalled *signalError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &signalled):
		return signalled.code()
	case errors.As(err, &coded):
		return coded.code
	case errors.Is(err, engine.ErrInvalid) && !errors.As(err, new(*resp.ServerError)): // as of a channel
		return exitUsage
	case errors.Is(err, engine.ErrUnavailable), errors.Is(err, engine.ErrWrongType),
		errors.Is(err, engine.ErrOutcomeUnknown), errors.Is(err, engine.ErrNotAcked), errors.Is(err, engine.ErrLate),
		errors.Is(err, redistest.ErrNotInstalled), errors.As(err, new(*resp.ServerError)):
		return exitServer // nobody else has the lock
	case errors.Is(err, engine.ErrLost):
		return exitLost
	case errors.Is(err, engine.ErrNotAcquired):
		return exitNotAcquired
	}
	return exitFailed
}

// deathSignal is the signal that the process must end by, 0 if it just exits. A shell
// looks at it: a script is interrupted only if what it runs died of the interrupt.
func deathSignal(err error) syscall.Signal {
	var coded *exitError
	var signalled *signalError
	switch {
	case errors.As(err, &coded):
		return coded.signal
	case errors.As(err, &signalled):
		if s, ok := signalled.signal.(syscall.Signal); ok && interrupts(s) {
			return s
		}
	}
	return 0
}

// interrupts reports whether s is a signal that ends whatever runs on a terminal.
func interrupts(s syscall.Signal) bool { return s == syscall.SIGINT || s == syscall.SIGQUIT }

// errorText is what is printed of an error, on one line; "" for nothing.
func errorText(err error) string {
	var coded *exitError
	if err == nil || errors.As(err, &coded) && coded.err == nil {
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
