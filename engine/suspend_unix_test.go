//go:build unix

package engine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The process is stopped past its lease. On resume the hold is over before anything
// is done under it, although no timer has had time to run.
func TestSuspendedProcessFindsItsHoldEnded(t *testing.T) {
	if url := os.Getenv("PAWL_TEST_SUSPENDED"); url != "" {
		suspended(t, url)
		return
	}
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		cmd := exec.Command(os.Args[0], "-test.run=^TestSuspendedProcessFindsItsHoldEnded$", "-test.v")
		cmd.Env = append(os.Environ(), "PAWL_TEST_SUSPENDED="+s.URL())
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		eventually(t, "the process holds the lock", func() bool { return len(fields(t, s, "x")) == 1 && s.Do("EXISTS", "ready") == int64(1) })
		if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		stopped := time.Now()
		eventually(t, "the key expires", func() bool {
			return len(fields(t, s, "x")) == 0 && time.Since(stopped) > 800*time.Millisecond
		})
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		if !strings.Contains(out.String(), "ended before the first look") {
			t.Fatalf("the process did not report:\n%s", out.String())
		}
	})
}

// suspended is the process that is stopped: it looks at its hold all the time, and
// must never find it live at a moment when the key has expired.
func suspended(t *testing.T, url string) {
	e := open(t, url, short)
	h := mustLock(t, e.Mutex("x"))
	last := time.Now()
	// Beside the loop: a stop between the two would not be seen.
	ready := make(chan error, 1)
	go func() {
		_, err := e.client.Do(ctxT(t), "SET", "ready", "1")
		ready <- err
	}()
	defer func() {
		if err := <-ready; err != nil {
			t.Error(err)
		}
	}()
	deadline := last.Add(limit)
	for time.Now().Before(deadline) {
		now := time.Now()
		gap := now.Sub(last)
		last = now
		err := h.Err()
		if gap > 600*time.Millisecond {
			// This is the first look after the stop.
			if !errors.Is(err, ErrLost) {
				t.Fatalf("after a stop of %v the hold is %v", gap, err)
			}
			fmt.Println("ended before the first look")
			return
		}
	}
	t.Fatal("never stopped")
}
