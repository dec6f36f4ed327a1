package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// signalError is the end that a signal asked for.
type signalError struct{ signal os.Signal }

func (e *signalError) Error() string { return fmt.Sprintf("ended by signal: %v", e.signal) }

// code is the exit code that shells use for it.
func (e *signalError) code() int {
	if s, ok := e.signal.(syscall.Signal); ok {
		return 128 + int(s)
	}
	return exitFailed
}

// untilSignal returns a context that ends when the process is asked to end; its
// cause is a *signalError. A second signal ends the process.
func untilSignal(parent context.Context) (ctx context.Context, stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, endSignals...)
	ctx, cancel := context.WithCancelCause(parent)
	go func() {
		select {
		case s := <-signals:
			signal.Stop(signals)
			cancel(&signalError{s})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}
