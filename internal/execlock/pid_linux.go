package execlock

import (
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// setDefault lets the kernel handle a signal. (Of a signal that was caught once,
// os/signal keeps Go's own handler, which drops it, or prints stacks.) The runtime
// does not know; signal.Notify makes it right again.
func setDefault(s syscall.Signal) bool {
	var action [16]uintptr // more than a struct sigaction; all zero is SIG_DFL, whatever its layout
	const setSize = 8
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&action)), 0, setSize, 0, 0)
	return errno == 0
}

// raise sends a signal to this thread: it takes effect before raise returns, or when it is
// no longer blocked.
func raise(s syscall.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), s)
}

// stopProcess has the kernel stop this process, unless its group is orphaned. The signal
// waits until begun returns, and SIGCONT cancels it meanwhile: a shell that resumes us
// because the others have stopped must not come too early. If begun returns false it is cancelled.
func stopProcess(by syscall.Signal, begun func() bool) {
	blocking(by, func() {
		if !setDefault(by) {
			return
		}
		raise(by)
		if !begun() {
			signal.Ignore(by)
		}
	})
}

// Die ends this process by a signal, as the command ended: a shell that runs a script
// ends it too then. It returns if that is not possible: PID 1 does not die of its
// own signals.
func Die(s syscall.Signal) {
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // the core, if any, is the command's
	if setDefault(s) {
		raise(s)
	}
}

// canBlock: inBackground works.
const canBlock = true

// inBackground runs f, which changes or writes to the terminal: the kernel would stop
// this process for it if it is not in the foreground.
func inBackground(f func()) { blocking(unix.SIGTTOU, f) }

// blocking runs f with a signal blocked in this thread.
func blocking(s syscall.Signal, f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var block, old unix.Sigset_t
	block.Val[0] = 1 << (s - 1)
	if unix.PthreadSigmask(unix.SIG_BLOCK, &block, &old) == nil {
		defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil) }()
	}
	f()
}

// inheritedIgnored reports whether a signal is ignored. signal.Ignored does not know
// that of job control's.
func inheritedIgnored(s syscall.Signal) bool {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(status), "\nSigIgn:")
	line, _, _ := strings.Cut(after, "\n")
	mask, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	return err == nil && mask&(1<<(s-1)) != 0
}
