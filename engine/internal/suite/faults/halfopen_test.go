package faults

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// The other end of the connection of the messages is gone without a word, as when a
// NAT has forgotten it: a waiter must not sleep until an idle connection is looked at.
func TestWaiterOnAHalfOpenConnectionIsWokenWithinTheBound(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	p := faultproxy.New(t, "tcp", s.Addr())
	const timeout = 400 * time.Millisecond
	e := testkit.Open(t, "redis://"+p.Addr()+"?command_timeout=400ms")
	h := testkit.MustLock(t, testkit.Open(t, s.URL()).Mutex("x"), engine.Lease(time.Minute))
	f := e.Mutex("x").LockAsync(testkit.Ctx(t))
	testkit.Eventually(t, "it sleeps", func() bool {
		list, _ := s.Do("PUBSUB", "CHANNELS").([]any)
		return len(list) == 1 && p.Stats().Forwarded["EVALSHA"] >= 2 && e.Stats().InFlight == 0
	})
	p.Blackhole(faultproxy.Carried("SUBSCRIBE"))
	testkit.MustUnlock(t, h)
	start := cputime.Now()
	got, err := f.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	// Twice the timeout, and what a busy machine needs.
	if d := start.Elapsed(); d > 2*timeout+3*time.Second {
		t.Errorf("woken after %v", d)
	}
	testkit.MustUnlock(t, got)
}
