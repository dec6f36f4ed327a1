//go:build unix

package front

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
)

// All of the front belongs to a process that is stopped for five seconds: its connections live, and count as
// listeners. The others are served meanwhile; and it goes on, and is served, too.
func TestMutex_FrontStopped_OthersAreServedAndItGoesOn(t *testing.T) {
	if args := testkit.PeerArgs(); len(args) > 0 {
		bePeer(t, args)
		return
	}
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		c := newContest(t, single(t))
		h := testkit.MustLock(t, c.lock(c.open(1)[0]))
		p := c.startPeer(t, places)
		living := c.line(c.open(6)...)
		p.stop(t)
		stopped := time.Now()
		testkit.MustUnlock(t, h)
		released := cputime.Now()
		c.wantNextSoon(released)
		c.wantServed(living...)
		t.Logf("all have had it after %v", released.Elapsed())
		testkit.Pause(nil, 5*time.Second-time.Since(stopped)) // the time itself is wanted
		if err := p.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if err := testkit.Receive(t, p.ended); err != nil {
			t.Errorf("the process that was stopped: %v", err)
		}
		c.at.Clean(t)
	})
}

// The first of the front belongs to a process that is stopped. The others wait for it once, for 10 ms, and not at
// each turn. When it goes on it is served.
func TestMutex_FirstStopped_LosesItsPlace(t *testing.T) {
	if args := testkit.PeerArgs(); len(args) > 0 {
		bePeer(t, args)
		return
	}
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		c := newContest(t, single(t))
		h := testkit.MustLock(t, c.lock(c.open(1)[0]))
		p := c.startPeer(t, 1)
		stopped := c.queue()[0]
		engines := c.open(6)
		living := c.line(engines...)
		p.stop(t)
		testkit.MustUnlock(t, h)
		c.wantServed(living...)
		if slices.Contains(c.queue(), stopped) {
			t.Errorf("it has its place still: %v", c.queue())
		}
		c.loop(10, engines...)
		if err := p.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if err := testkit.Receive(t, p.ended); err != nil {
			t.Errorf("the process that was stopped: %v", err)
		}
		c.at.Clean(t)
	})
}

// stop stops the process, and waits until it stands: a signal that was sent is not obeyed yet, and one of its
// engines could take the lock.
func (p *peer) stop(t testing.TB) {
	t.Helper()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for {
		var status syscall.WaitStatus
		switch _, err := syscall.Wait4(p.Pid, &status, syscall.WUNTRACED, nil); {
		case err == syscall.EINTR:
		case err != nil || !status.Stopped():
			t.Fatalf("the process does not stop: %v, %v", status, err)
		default:
			return
		}
	}
}
