package engine

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/drive"
	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// resourceOf returns the state of a name, nil if it has none.
func resourceOf(e *Engine, name string) *machine.Resource {
	sh := e.table.Shard(e.table.Client.Route(name))
	sh.Lock()
	defer sh.Unlock()
	return sh.Find(drive.Key{Name: name, Kind: kind.Mutex})
}

// wantNoneListedAndFree fails the test if recovery points to a resource that the next
// name may be given.
func wantNoneListedAndFree(t *testing.T, e *Engine) (listed int) {
	t.Helper()
	for _, l := range e.table.Recovery.View().Lanes {
		for _, r := range slices.Concat(l.Urgent, l.Tries) {
			listed++
			res := drive.ResourceOf(r)
			sh := drive.ShardOf(res)
			sh.Lock()
			if slices.Contains(sh.Free(), res) {
				t.Error("recovery lists a resource that is free for another name")
			}
			sh.Unlock()
		}
	}
	return listed
}

// A name is held back by one thing at a time:
//
//	head                TryLock            server
//	asleep              sent
//	channel lost:
//	stalled, listed by
//	recovery
//	                    <----------------  BUSY
//	cancelled                              the lane dies
//	... if BUSY had paused the name, the end of the pause would let it go, and recovery
//	would still have it when it serves another
func TestRefusalDoesNotPauseANameThatRecoveryHas(t *testing.T) {
	t.Parallel()
	s, p, e, clk := behindOn(t, patient)
	other := open(t, s.URL())
	h := mustLock(t, other.Mutex("x"))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	waiter := e.Mutex("x").LockAsync(ctx)
	eventually(t, "the head is asleep, its subscription confirmed", func() bool {
		return p.Stats().Forwarded["EVALSHA"] == 2 && e.Stats().InFlight == 0
	})
	r := resourceOf(e, "x")
	held := func(why machine.Holdback) func() bool {
		return func() bool {
			sh := drive.ShardOf(r)
			sh.Lock()
			defer sh.Unlock()
			return r.Held() == why
		}
	}
	p.ReplaceReply(acquireOf("x"), []byte("-BUSY Redis is busy\r\n"), 1)
	p.Pause(faultproxy.Carried("EVALSHA"))
	tries, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	try := e.Mutex("x").TryLockAsync(tries)
	eventually(t, "the TryLock is out", func() bool { return e.Stats().InFlight == 1 })
	p.Cut(faultproxy.Carried("SUBSCRIBE"))
	eventually(t, "the name is stalled", held(machine.Stalled))
	p.Resume()
	eventually(t, "the TryLock is refused, for now", func() bool { return e.Stats().InFlight == 0 })
	giveUp()
	if _, err := try.Await(ctxT(t)); !errors.Is(err, context.Canceled) {
		t.Fatalf("TryLock: %v", err)
	}
	p.Down()
	eventually(t, "the lane is down", func() bool { return !connected(e).Up(0, 0) })
	cancel()
	if _, err := waiter.Await(ctxT(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("the waiter: %v", err)
	}
	clk.pass(time.Minute) // whatever was armed has fired
	if n := wantNoneListedAndFree(t, e); n != 1 {
		t.Errorf("recovery lists %d names, want this one", n)
	}
	p.Up()
	eventually(t, "the name is gone", func() bool { return inspect(e).Names == 0 && wantNoneListedAndFree(t, e) == 0 })
	mustUnlock(t, h)
	mustUnlock(t, mustLock(t, e.Mutex("x")))
}
