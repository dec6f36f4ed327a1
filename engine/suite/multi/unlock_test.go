package multi

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/kit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// One lock turns out to be lost and another has no answer when the waiting ends: the error
// has both, and the names.
func TestMultiHold_UnlockStopsWaiting_SaysWhatItKnows(t *testing.T) {
	t.Parallel()
	s2, p, slow := kit.Behind(t)
	s1 := kit.Server(t)
	e := kit.Open(t, s1.URL())
	m, err := engine.Multi(e.Mutex("x"), slow.Mutex("y"), e.Mutex("z")).Lock(kit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	s1.Do("DEL", "x")
	p.Pause(faultproxy.All)
	defer p.Resume()
	ctx, cancel := context.WithCancel(kit.Ctx(t))
	defer cancel()
	f := make(chan error, 1)
	go func() { f <- m.Unlock(ctx) }()
	kit.Eventually(t, "x and z have their answers", func() bool {
		st := e.Stats()
		return st.InFlight == 0 && st.Released == 1 && st.Lost[engine.GoneOnServer] == 1
	})
	cancel()
	err = kit.Receive(t, f)
	var lost *engine.LostError
	if !errors.As(err, &lost) || lost.Name != "x" || !errors.Is(err, engine.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) ||
		!kit.HasText(err, `lock "y"`) || kit.HasText(err, `"z"`) {
		t.Errorf("Unlock: %v", err)
	}
	if n := slow.Stats().UnknownOutcomes; n != 1 {
		t.Errorf("%d unknown outcomes", n)
	}
	p.Resume()
	kit.Clean(t, s1, e)
	kit.Clean(t, s2, slow)
}

// Somebody has one of the locks: no answer from another server changes that.
func TestMultiLock_TryLockHeldWithAServerAway_SaysWhichIsHeld(t *testing.T) {
	t.Parallel()
	s2, p, away := kit.Behind(t, func(c *engine.Config) { c.CommandTimeout = 200 * time.Millisecond })
	s1 := kit.Server(t)
	e, holder := kit.Open(t, s1.URL()), kit.Open(t, s1.URL())
	h := kit.MustLock(t, holder.Mutex("y"))
	p.Down()
	l := engine.Multi(away.Mutex("x"), e.Mutex("y"))
	var refused *engine.NotAcquiredError
	if _, err := l.TryLock(kit.Ctx(t)); !errors.Is(err, engine.ErrHeld) || !errors.As(err, &refused) || refused.Name != "y" {
		t.Errorf("TryLock: %v", err)
	}
	if ran, err := l.TryDo(kit.Ctx(t), func(context.Context, *engine.Hold) error { return nil }); ran || err != nil {
		t.Errorf("TryDo: %v, %v", ran, err)
	}
	kit.MustUnlock(t, h)
	p.Up()
	kit.Clean(t, s1, e, holder)
	kit.Clean(t, s2, away)
}
