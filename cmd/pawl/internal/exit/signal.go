package exit

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// sameSignal is how long what comes after a signal counts as the same one: timeout(1) sends
// each to its command, and then to the group that this is in.
const sameSignal = 250 * time.Millisecond

// SignalError is the end that a signal asked for.
type SignalError struct{ Signal os.Signal }

func (e *SignalError) Error() string { return fmt.Sprintf("ended by signal: %v", e.Signal) }

// code is the exit code that shells use for it.
func (e *SignalError) code() int {
	if s, ok := e.Signal.(syscall.Signal); ok {
		return 128 + int(s)
	}
	return Failed
}

// UntilSignal returns a context that ends when the process is asked to end; its
// cause is a *SignalError. A second signal ends the process, unless it comes with the
// first. Signals that are ignored, as SIGHUP under nohup, stay so. After stop, which must
// be called once, the cause says whether a signal came.
func UntilSignal(parent context.Context) (ctx context.Context, stop func()) {
	signals := make(chan os.Signal, 1)
	for _, one := range EndSignals {
		if !signal.Ignored(one) {
			signal.Notify(signals, one)
		}
	}
	ctx, cancel := context.WithCancelCause(parent)
	quit, ended := make(chan struct{}), make(chan struct{})
	heed := func(s os.Signal) {
		cancel(&SignalError{Signal: s})
		same := time.NewTimer(sameSignal)
		defer same.Stop()
		select {
		case <-same.C:
		case <-quit:
		}
		signal.Stop(signals)
	}
	go func() {
		defer close(ended)
		select {
		case s := <-signals:
			heed(s)
		case <-quit:
			select {
			case s := <-signals: // it came first
				heed(s)
			default:
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(quit)
		<-ended
		cancel(nil)
	}
}
