package testkit

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

// PeerArgs returns the arguments of this process: none, unless a test has started it.
func PeerArgs() []string { return strings.Fields(os.Getenv(peerEnv)) }

// Peer is one more process that runs the test which has started it.
type Peer struct {
	*os.Process
	in         io.Closer // its standard input: peers may wait for the end of it
	out        *bufio.Scanner
	complaints bytes.Buffer
	wait       func() error
}

// StartPeer runs the test itself in one more process, whose PeerArgs are args. It is killed
// at the end of the test, unless it has ended.
func StartPeer(t testing.TB, args ...any) *Peer {
	t.Helper()
	if len(PeerArgs()) > 0 {
		t.Fatal("a peer starts peers: its test must ask for PeerArgs first")
	}
	test, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.timeout=0")
	cmd.Env = append(os.Environ(), peerEnv+"="+strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	p := &Peer{in: in, out: bufio.NewScanner(out), wait: sync.OnceValue(cmd.Wait)}
	cmd.Stderr = &p.complaints
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	p.Process = cmd.Process
	t.Cleanup(func() { _, _ = p.Kill(), p.wait() })
	return p
}

// Line is the next line that the peer prints; "" if it has ended.
func (p *Peer) Line() string {
	if !p.out.Scan() {
		return ""
	}
	return p.out.Text()
}

// EndInput ends what the peer can read.
func (p *Peer) EndInput() { _ = p.in.Close() }

// Follow calls line with each line that the peer prints, and returns when it has ended. The
// error has its last lines: a test that fails says why in the one before "FAIL".
func (p *Peer) Follow(line func(text string)) error {
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

// Peers runs the test itself in two more processes, whose PeerArgs are number and args, and
// calls line with each line that they print. They begin together: see Begins.
func Peers(t *testing.T, line func(process int, text string), args ...any) {
	t.Helper()
	var mu sync.Mutex
	var running, ready sync.WaitGroup
	ready.Add(2)
	var both [2]*Peer
	for process := range both {
		both[process] = StartPeer(t, append([]any{process}, args...)...)
	}
	for process, p := range both {
		running.Go(func() {
			p.out.Scan()
			ready.Done() // or it has failed, and ends
			ready.Wait()
			p.EndInput()
			if err := p.Follow(func(text string) {
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

// Begins tells the test that this process is ready, and waits for the other one.
func Begins() {
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1))
}
