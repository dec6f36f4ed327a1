//go:build unix

package faults

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// The process is stopped past its lease. On resume the hold is over before anything
// is done under it, although no timer has had time to run.
func TestSuspendedProcessFindsItsHoldEnded(t *testing.T) {
	if args := testkit.PeerArgs(); len(args) == 1 {
		suspended(t, args[0])
		return
	}
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		p := testkit.StartPeer(t, s.URL())
		testkit.Eventually(t, "the process holds the lock", func() bool { return len(testkit.Fields(t, s, "x")) == 1 && s.Do("EXISTS", "ready") == int64(1) })
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		stopped := time.Now()
		testkit.Eventually(t, "the key expires", func() bool {
			return len(testkit.Fields(t, s, "x")) == 0 && time.Since(stopped) > 800*time.Millisecond
		})
		if err := p.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		var said []string
		if err := p.Follow(func(text string) { said = append(said, text) }); err != nil {
			t.Fatalf("%v\n%q", err, said)
		}
		if !slices.Contains(said, "ended before the first look") {
			t.Fatalf("the process did not report: %q", said)
		}
	})
}

// suspended is the process that is stopped: it looks at its hold all the time, and
// must never find it live at a moment when the key has expired.
func suspended(t *testing.T, url string) {
	e := testkit.Open(t, url, short)
	h := testkit.MustLock(t, e.Mutex("x"))
	last := time.Now()
	// Beside the loop: a stop between the two would not be seen.
	ready := make(chan error, 1)
	go func() {
		_, err := testkit.Client(e).Do(testkit.Ctx(t), "SET", "ready", "1")
		ready <- err
	}()
	defer func() {
		if err := <-ready; err != nil {
			t.Error(err)
		}
	}()
	deadline := last.Add(testkit.Limit)
	for time.Now().Before(deadline) {
		now := time.Now()
		gap := now.Sub(last)
		last = now
		err := h.Err()
		if gap > 600*time.Millisecond {
			// This is the first look after the stop.
			if !errors.Is(err, engine.ErrLost) {
				t.Fatalf("after a stop of %v the hold is %v", gap, err)
			}
			fmt.Println("ended before the first look")
			return
		}
	}
	t.Fatal("never stopped")
}
