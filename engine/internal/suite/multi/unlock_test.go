package multi

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// One lock turns out to be lost and another has no answer when the waiting ends: the error
// has both, and the names.
func TestMultiHold_UnlockStopsWaiting_SaysWhatItKnows(t *testing.T) {
	t.Parallel()
	s2, p, slow := testkit.Behind(t)
	s1 := testkit.Server(t)
	e := testkit.Open(t, s1.URL())
	m, err := engine.Multi(e.Mutex("x"), slow.Mutex("y"), e.Mutex("z")).Lock(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	s1.Do("DEL", "x")
	p.Pause(faultproxy.All)
	defer p.Resume()
	ctx, cancel := context.WithCancel(testkit.Ctx(t))
	defer cancel()
	f := make(chan error, 1)
	go func() { f <- m.Unlock(ctx) }()
	testkit.Eventually(t, "x and z have their answers", func() bool {
		st := e.Stats()
		return st.InFlight == 0 && st.Released == 1 && st.Lost[engine.RemovedOnServer] == 1
	})
	cancel()
	err = testkit.Receive(t, f)
	var lost *engine.LostError
	if !errors.As(err, &lost) || lost.Name != "x" || !errors.Is(err, engine.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) ||
		!testkit.HasText(err, `lock "y"`) || testkit.HasText(err, `"z"`) {
		t.Errorf("Unlock: %v", err)
	}
	if n := slow.Stats().UnknownOutcomes; n != 1 {
		t.Errorf("%d unknown outcomes", n)
	}
	p.Resume()
	testkit.Clean(t, s1, e)
	testkit.Clean(t, s2, slow)
}

// Somebody has one of the locks: no answer from another server changes that.
func TestMultiLock_TryLockHeldWithAServerAway_SaysWhichIsHeld(t *testing.T) {
	t.Parallel()
	s2, p, away := testkit.Behind(t, func(c *engine.Config) { c.CommandTimeout = 200 * time.Millisecond })
	s1 := testkit.Server(t)
	e, holder := testkit.Open(t, s1.URL()), testkit.Open(t, s1.URL())
	h := testkit.MustLock(t, holder.Mutex("y"))
	p.Down()
	l := engine.Multi(away.Mutex("x"), e.Mutex("y"))
	var refused *engine.NotAcquiredError
	if _, err := l.TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) || !errors.As(err, &refused) || refused.Name != "y" {
		t.Errorf("TryLock: %v", err)
	}
	if ran, err := l.TryDo(testkit.Ctx(t), func(context.Context, *engine.Hold) error { return nil }); ran || err != nil {
		t.Errorf("TryDo: %v, %v", ran, err)
	}
	testkit.MustUnlock(t, h)
	p.Up()
	testkit.Clean(t, s1, e, holder)
	testkit.Clean(t, s2, away)
}
