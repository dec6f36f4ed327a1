// Package execlock runs a command while a lock is held: signals are passed on, a
// lost lock ends the command, and the lock is released after the command has ended.
package execlock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// NameEnv is the variable that tells the command the name of the lock.
const NameEnv = "PAWL_LOCK_NAME"

// releaseTimeout bounds how long Run waits for the answer to the release. The
// command's work is done by then, and the lease ends the lock anyway.
const releaseTimeout = 3 * time.Second

// Config says what to run under which lock.
type Config struct {
	Name string
	// Wait bounds the waiting for the lock: 0 is one attempt, negative as long as it
	// takes.
	Wait    time.Duration
	Options []engine.Option
	// KeepRunning lets the command go on when the lock is lost.
	KeepRunning bool
	// Grace is how long a command that was asked to end may take.
	Grace time.Duration
	// Command is the program, which exec.LookPath has found, and its arguments.
	Command []string
	// Signals are passed on to the command. One that arrives before the command was
	// started ends the waiting.
	Signals <-chan os.Signal
	// Warn tells the user something that is no error.
	Warn func(format string, args ...any)
}

// ErrStart: the lock was acquired, but the command could not be started.
var ErrStart = errors.New("cannot start the command")

// SignalError says that a signal came before the command was started.
type SignalError struct{ Signal os.Signal }

func (e *SignalError) Error() string {
	return fmt.Sprintf("ended by signal while waiting for the lock: %v", e.Signal)
}

// Run acquires the lock, runs the command and releases the lock. It returns the
// exit code of the command, 128+n if signal n ended it. An error that Is
// engine.ErrLost comes after the command has ended, with its code; after any other
// error the command did not run.
func Run(ctx context.Context, eng *engine.Engine, cfg Config) (code int, err error) {
	hold, err := acquire(ctx, eng.Mutex(cfg.Name), cfg)
	if err != nil {
		return 0, err
	}
	child, err := start(cfg)
	if err != nil {
		return 0, errors.Join(err, release(ctx, hold, cfg.Warn))
	}
	lost := child.attend(hold, cfg)
	err = release(ctx, hold, cfg.Warn)
	if cfg.KeepRunning {
		if lost == nil && err != nil { // nobody knew before
			cfg.Warn("%v while the command ran", err)
		}
		return child.code, nil
	}
	if lost == nil {
		lost = err
	}
	return child.code, lost
}

// acquire waits for the lock or a signal.
func acquire(ctx context.Context, m engine.Mutex, cfg Config) (*engine.Hold, error) {
	var f *engine.Future[*engine.Hold]
	switch {
	case cfg.Wait == 0:
		f = m.TryLockAsync(ctx, cfg.Options...)
	case cfg.Wait > 0:
		f = m.LockAsync(ctx, append(cfg.Options, engine.Wait(cfg.Wait))...)
	default:
		f = m.LockAsync(ctx, cfg.Options...)
	}
	select {
	case <-f.Done():
	case s := <-cfg.Signals:
		f.Abandon()
		return nil, &SignalError{s}
	}
	hold, err := f.Result()
	if err != nil {
		return nil, err
	}
	select {
	case s := <-cfg.Signals: // both at once: the command must not start
		return nil, errors.Join(&SignalError{s}, release(ctx, hold, cfg.Warn))
	default:
		return hold, nil
	}
}

// release gives the lock back. It is an error only if the lock was lost before: for
// the command it makes no difference who ends the lock, the release or the lease.
func release(ctx context.Context, hold *engine.Hold, warn func(string, ...any)) error {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	err := hold.Unlock(ctx)
	if err == nil || errors.Is(err, engine.ErrLost) {
		return err
	}
	warn("the lock was not released and ends with its lease: %v", err)
	return nil
}
