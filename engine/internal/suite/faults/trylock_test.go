package faults

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/fakenode"
)

// notNow are refusals of a server that may accept the same a moment later.
var notNow = []string{
	"LOADING Redis is loading the dataset in memory",
	"CLUSTERDOWN Hash slot not served",
	"TRYAGAIN Multiple keys request during rehashing of slot",
	"READONLY You can't write against a read only replica.",
	"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
	"BUSY Redis is busy running a script.",
}

// grants makes a server that grants every lock.
func grants(t testing.TB) *fakenode.Node {
	n := fakenode.New(t)
	for _, s := range []*script.Script{script.Acquire, script.Reenter} {
		n.On(testkit.Calls(s), fakenode.Int(script.Granted))
	}
	for _, s := range []*script.Script{script.Release, script.Leave} {
		n.On(testkit.Calls(s), fakenode.Int(script.Done))
	}
	return n
}

// TryLock is for one answer: who has the lock. A refusal for now is none, and waited out.
func TestTryLock_NotNow_WaitsForAnAnswer(t *testing.T) {
	t.Parallel()
	for _, refusal := range notNow {
		t.Run(refusal, func(t *testing.T) {
			t.Parallel()
			n := grants(t)
			e := testkit.Open(t, "redis://"+n.Addr())
			refused := n.OnNext(3, testkit.Calls(script.Acquire), fakenode.Error(refusal))
			h, err := e.Mutex("x").TryLock(testkit.Ctx(t))
			if err != nil || refused.Hits() != 3 {
				t.Fatalf("after %d refusals: %v", refused.Hits(), err)
			}
			// A re-entry is no different.
			again := n.OnNext(2, testkit.Calls(script.Reenter), fakenode.Error(refusal))
			child, err := e.Mutex("x").TryLock(h.Context(testkit.Ctx(t)))
			if err != nil || again.Hits() != 2 {
				t.Fatalf("re-entry, after %d refusals: %v", again.Hits(), err)
			}
			testkit.MustUnlock(t, child)
			testkit.MustUnlock(t, h)
		})
	}
}

// A connection that is cut under the command is no answer either. What the server may have granted is
// given back, so the next try of the same call is granted.
func TestTryLock_AnswerLost_TriesAgain(t *testing.T) {
	t.Parallel()
	s, p, e := testkit.Behind(t)
	cut := p.CutAfterRequest(testkit.AcquireOf("x"))
	h, err := e.Mutex("x").TryLock(testkit.Ctx(t))
	if err != nil || cut.Done() == 0 {
		t.Fatalf("cut %d times: %v", cut.Done(), err)
	}
	testkit.MustUnlock(t, h)
	testkit.Clean(t, s, e)
}

// It is waited for as long as a connection may be silent, and no longer; the last refusal is the
// reason.
func TestTryLock_NotNowForLong_IsUnavailable(t *testing.T) {
	t.Parallel()
	const patience = 300 * time.Millisecond
	n := grants(t)
	e := testkit.Open(t, "redis://"+n.Addr(), func(c *engine.Config) { c.CommandTimeout = patience })
	other := testkit.Open(t, "redis://"+grants(t).Addr())
	busy := grants(t)
	third := testkit.Open(t, "redis://"+busy.Addr(), func(c *engine.Config) { c.CommandTimeout = patience })
	busy.On(fakenode.Is("EVALSHA"), fakenode.Error("LOADING Redis is loading the dataset in memory"))
	n.On(fakenode.Is("EVALSHA"), fakenode.Error("LOADING Redis is loading the dataset in memory"))
	for what, try := range map[string]func(ctx context.Context) error{
		"mutex":   func(ctx context.Context) error { return testkit.ErrOf(e.Mutex("a").TryLock(ctx)) },
		"async":   func(ctx context.Context) error { return testkit.ErrOf(e.Mutex("b").TryLockAsync(ctx).Await(ctx)) },
		"reader":  func(ctx context.Context) error { return testkit.ErrOf(e.RWMutex("c").Reader().TryLock(ctx)) },
		"fair":    func(ctx context.Context) error { return testkit.ErrOf(e.FairMutex("d").TryLock(ctx)) },
		"permits": func(ctx context.Context) error { return testkit.ErrOf(e.PermitSemaphore("e").TryAcquire(ctx, 2)) },
		"count":   func(ctx context.Context) error { return testkit.ErrOf(e.Semaphore("f").TryAcquire(ctx, 1)) },
		"many":    func(ctx context.Context) error { return testkit.ErrOf(e.Many([]string{"g", "h"}...).TryLock(ctx)) },
		"RedLock": func(ctx context.Context) error {
			return testkit.ErrOf(engine.RedLock(e.Mutex("i"), other.Mutex("i"), third.Mutex("i")).TryLock(ctx))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			testkit.Steady(t, func(t testing.TB) { // or the refusal comes too late
				begun := time.Now()
				err := try(testkit.Ctx(t))
				took := time.Since(begun)
				if !errors.Is(err, engine.ErrUnavailable) || errors.Is(err, engine.ErrHeld) || !testkit.HasText(err, "LOADING") {
					t.Errorf("after %v: %v", took, err)
				}
				if took < patience/2 || took > patience+5*time.Second {
					t.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
}

// A Lock of many keeps none of them while it waits for one.
func TestLockMany_NotNow_GivesTheOthersBackAtOnce(t *testing.T) {
	t.Parallel()
	n := grants(t)
	e := testkit.Open(t, "redis://"+n.Addr())
	onB := func(c fakenode.Command) bool { return testkit.Calls(script.Acquire)(c) && c.Words[3] == "b" }
	rule := n.On(onB, fakenode.Error("LOADING Redis is loading the dataset in memory"))
	f := e.Many("a", "b").LockAsync(testkit.Ctx(t))
	n.WaitFor(1, testkit.Calls(script.Release)) // of a
	rule.Remove()
	if _, err := f.Await(testkit.Ctx(t)); err != nil {
		t.Fatal(err)
	}
}
