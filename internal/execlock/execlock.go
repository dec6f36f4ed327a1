// Package execlock runs a command while a lock is held: signals are passed on, a
// lost lock ends the command, and the lock is released after the command has ended.
//
// The command leads a process group of its own, so that all of it can be ended when
// the lock is lost. The shell and the terminal see one command; jobcontrol_unix.go
// says how.
//
// It is made for a process that does nothing else: it catches the process's signals
// and waits for whatever child the process has.
//
// # Not obvious
//
//   - A suspended pawl must not leave its command running, because nobody would renew the
//     lock. It stops the command first, and looks at the hold before the command goes on.
//     Its output goes through a goroutine that may block for ever, so the command gets its
//     signal before the warning is printed.
//   - A stop that SIGCONT must cancel is pending before the others of the job stop. A shell
//     resumes a job once one process of it has stopped. A process that stops itself after
//     that stays stopped (stopSelf).
//   - A command may have process groups of its own: timeout(1), a shell's jobs, a nested
//     pawl. Signals go to the command's group alone, which passes them on. The other groups
//     get SIGTERM once the command has ended without them, SIGKILL after the grace, and
//     SIGSTOP when the job is suspended. pawl is a subreaper from before the command starts,
//     so that it finds orphans. Children and groups that it has by then are not the command's
//     (adopt, others). The id of a group that has ended may be a stranger's (ownRemains).
//   - SIGKILL takes a moment, and one look at /proc may miss a process that is succeeded by
//     its child (over, lives).
package execlock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// NameEnv is the variable that tells the command the names of the locks, one a line.
const NameEnv = "PAWL_LOCK_NAME"

// TokenEnv is the variable that tells the command the fencing token of a Fenced lock.
const TokenEnv = "PAWL_TOKEN"

// MaxNames bounds the names together, with a byte between two: Linux starts no command with
// a variable of more than 128 KiB.
const MaxNames = 128<<10 - len(NameEnv+"=") - 1

// Config says what to run under which locks.
type Config struct {
	// Names are the locks. Several are taken as one: all of them, or none. A Fenced lock, which
	// has a token of its own, and a Semaphore are one alone.
	Names []string
	// Kind is what they are, a Mutex by default.
	Kind Kind
	// Permits are how many a Semaphore has, if nobody has said so before; 0: others say so.
	Permits int
	// Wait bounds the waiting for the lock: 0 is one attempt, negative as long as it
	// takes.
	Wait    time.Duration
	Options []engine.Option
	// ReplicasHave is how long replicas have to acknowledge a lock; 0: none are asked.
	ReplicasHave time.Duration
	// KeepRunning lets the command go on when the lock is lost.
	KeepRunning bool
	// Grace is how long a command that was asked to end may take.
	Grace time.Duration
	// Command is the program, which exec.LookPath has found, and its arguments.
	Command []string
	// Signals are what Catch has caught.
	Signals *Signals
	// Say tells the user something that is no error. It must not block, whatever the
	// user's terminal does: a command that must end would go on meanwhile.
	Say func(format string, args ...any)
	// SayWhoHolds has Say name the holder of a lock that is not had at once.
	SayWhoHolds bool
}

// End is how the command ended.
type End struct {
	Code   int            // its exit code, 128+n if signal n ended it
	Signal syscall.Signal // n, or 0
}

// ErrStart: the lock was acquired, but the command could not be started.
var ErrStart = errors.New("cannot start the command")

// SignalError says that a signal came before the command was started.
type SignalError struct{ Signal os.Signal }

func (e *SignalError) Error() string {
	return fmt.Sprintf("ended by signal while waiting for the lock: %v", e.Signal)
}

// Run acquires the lock, runs the command, releases the lock and closes the engines. With
// several engines the lock is one name, held on a majority of their servers.
// An error that Is engine.ErrLost comes with how the command ended, whose Code is
// then set; after any other error the command did not run.
func Run(ctx context.Context, engines []*engine.Engine, cfg Config) (end End, err error) {
	// On Linux the kernel kills the command when the thread that started it ends, not
	// the process: this one stays.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := runner{Config: cfg, engines: engines, sig: cfg.Signals}

	hold, err := r.acquire(ctx)
	if err != nil {
		r.giveUp()
		return End{}, err
	}
	c, err := r.start(hold)
	if err != nil {
		return End{}, errors.Join(err, r.finish(ctx, hold))
	}
	c.attend()
	released := r.finish(ctx, hold)
	switch {
	case c.lost == nil && cfg.KeepRunning && released != nil: // nobody knew before
		cfg.Say("%s while the command ran", text(released))
		return c.group.end, nil
	case cfg.KeepRunning:
		return c.group.end, nil
	case c.lost == nil:
		return c.group.end, released
	}
	return c.group.end, c.lost
}

// runner is one Run.
type runner struct {
	Config
	engines []*engine.Engine
	sig     *Signals
}
