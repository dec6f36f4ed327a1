package redistest

import (
	"os"
	"os/exec"
	"runtime"
)

// life is one run of the server process.
type life struct {
	process *os.Process
	exited  chan struct{} // closed when the process has been waited for
	err     error         // what Wait said; read after exited
}

// startLife starts the process. A goroutine owns it until it has exited.
//
// That goroutine is locked to its thread, because Linux sends the parent-death
// signal when the *thread* that forked ends, not the process: an unlocked
// goroutine might fork on a thread that the runtime retires while the tests run.
func startLife(binary, dir, conf string, log *os.File, sentinel bool) (*life, error) {
	l := &life{exited: make(chan struct{})}
	cmd := exec.Command(binary, conf)
	if sentinel {
		cmd.Args = append(cmd.Args, "--sentinel")
	}
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = sysProcAttr()
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		l.process = cmd.Process
		started <- err
		if err != nil {
			return
		}
		l.err = cmd.Wait()
		close(l.exited)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return l, nil
}

// kill ends the process and waits for it.
func (l *life) kill() {
	// The only error is that it has exited already.
	_ = l.process.Kill()
	<-l.exited
}
