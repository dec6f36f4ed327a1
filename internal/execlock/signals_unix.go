//go:build unix

package execlock

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// Signals are what this process catches, from before it waits for the lock to its end.
type Signals struct {
	asked    chan os.Signal // to be passed on; before the command runs, to be obeyed
	children chan os.Signal // something became of a child
	resumed  chan os.Signal // this process was told to go on
}

var (
	// ending ask the command to end. SIGQUIT is among them because Go would end this
	// process on it, and leave the lock to its lease.
	ending = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
	// passedOn are all others that it gets. (A new window size is told only to the
	// terminal's foreground, where the command mostly is not.)
	passedOn = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2}
	// jobControl are heeded in jobcontrol_unix.go.
	jobControl = []os.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGWINCH}
)

func ends(s os.Signal) bool { return slices.Contains(ending, s) }

// Catch catches what asks the command, or the waiting for the lock, to end. That is for good: until
// this process exits, no signal changes what its code will be. Whoever caught signals before that
// lets go of them after it, so that none is missed. Signals that are ignored, as SIGHUP under
// nohup, stay so, for the command too.
func Catch() *Signals {
	s := &Signals{make(chan os.Signal, 16), make(chan os.Signal, 1), make(chan os.Signal, 1)}
	if signal.Ignored(syscall.SIGINT) {
		// A shell without job control starts its background commands so. Go has kept
		// SIGINT ignored, but not SIGQUIT.
		signal.Ignore(syscall.SIGQUIT)
	}
	s.catch(ending)
	s.catch(passedOn)
	signal.Notify(s.children, syscall.SIGCHLD)
	select {
	case s.children <- syscall.SIGCHLD: // children from before exec may have ended already
	default:
	}
	signal.Notify(s.resumed, syscall.SIGCONT)
	return s
}

// catchJobControl comes just before the command starts. Without a command the
// terminal's signals do to us what they do to everybody.
func (s *Signals) catchJobControl() { s.catch(jobControl) }

// started comes after it has started: what is ignored would be inherited.
func (s *Signals) started() {
	if !canBlock {
		signal.Ignore(syscall.SIGTTOU) // which stops who uses the terminal from behind
	}
}

func (s *Signals) catch(all []os.Signal) {
	for _, one := range all {
		if !signal.Ignored(one) && !inheritedIgnored(one.(syscall.Signal)) {
			signal.Notify(s.asked, one)
		}
	}
}
