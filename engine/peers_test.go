package engine

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// peerEnv has the arguments of a process that a test has started.
const peerEnv = "PAWL_TEST_PEER"

// peerArgs returns the arguments of this process: none, unless a test has started it.
func peerArgs() []string { return strings.Fields(os.Getenv(peerEnv)) }

// peer is one more process that runs the test which has started it.
type peer struct {
	*os.Process
	in         io.Closer // its standard input: peers may wait for the end of it
	out        *bufio.Scanner
	complaints bytes.Buffer
	wait       func() error
}

// startPeer runs the test itself in one more process, whose peerArgs are args. It is killed
// at the end of the test, unless it has ended.
func startPeer(t testing.TB, args ...any) *peer {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.timeout=0")
	cmd.Env = append(os.Environ(), peerEnv+"="+strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	p := &peer{in: in, out: bufio.NewScanner(out), wait: sync.OnceValue(cmd.Wait)}
	cmd.Stderr = &p.complaints
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	p.Process = cmd.Process
	t.Cleanup(func() { _, _ = p.Kill(), p.wait() })
	return p
}

// follow calls line with each line that the peer prints, and returns when it has ended. The
// error has its last lines: a test that fails says why in the one before "FAIL".
func (p *peer) follow(line func(text string)) error {
	const tail = 10
	var last []string
	for p.out.Scan() {
		last = append(last[max(0, len(last)+1-tail):], p.out.Text())
		line(p.out.Text())
	}
	if err := p.wait(); err != nil {
		return fmt.Errorf("%w: %s %s", err, strings.Join(last, "\n"), p.complaints.String())
	}
	return nil
}

// peers runs the test itself in two more processes, whose peerArgs are number and args, and
// calls line with each line that they print. They begin together: see begins.
func peers(t *testing.T, line func(process int, text string), args ...any) {
	t.Helper()
	var mu sync.Mutex
	var running, ready sync.WaitGroup
	ready.Add(2)
	var both [2]*peer
	for process := range both {
		both[process] = startPeer(t, append([]any{process}, args...)...)
	}
	for process, p := range both {
		running.Go(func() {
			p.out.Scan()
			ready.Done() // or it has failed, and ends
			ready.Wait()
			_ = p.in.Close()
			if err := p.follow(func(text string) {
				mu.Lock()
				defer mu.Unlock()
				line(process, text)
			}); err != nil {
				t.Errorf("process %d: %v", process, err)
			}
		})
	}
	running.Wait()
}

// begins tells the test that this process is ready, and waits for the other one.
func begins() {
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1))
}
