package lease

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// One that gives up before it was sent makes way for those behind it.
func TestExtend_GivesUpInTheQueue_NextOneTakesItsTurn(t *testing.T) {
	t.Parallel()
	s, p, e := testkit.Behind(t)
	m := e.Mutex("x")
	h := testkit.MustLock(t, m, engine.Lease(20*time.Second))
	p.Pause(faultproxy.All)
	reentry := m.LockAsync(h.Context(testkit.Ctx(t)))
	testkit.Eventually(t, "the re-entry is in flight", func() bool { return e.Stats().InFlight > 0 })
	extend := func(ctx context.Context, d time.Duration) <-chan error {
		waits, extended := &seenWaiting{ctx, make(chan struct{}, 1)}, make(chan error, 1)
		go func() { extended <- h.Extend(waits, d) }()
		testkit.Receive(t, waits.seen)
		return extended
	}
	ctx, cancel := context.WithCancel(context.Background())
	first := extend(ctx, time.Minute)
	second := extend(testkit.Ctx(t), time.Hour)
	cancel()
	if err := testkit.Receive(t, first); !errors.Is(err, engine.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("the first: %v", err)
	}
	p.Resume()
	if err := testkit.Receive(t, second); err != nil {
		t.Fatalf("the second: %v", err)
	}
	if left := testkit.PTTL(t, s, "x"); left < 50*time.Minute {
		t.Errorf("Extend by an hour succeeded, and the key has %v left", left)
	}
	if _, err := reentry.Await(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
	testkit.MustUnlock(t, h)
	testkit.Clean(t, s)
}

// seenWaiting says when somebody waits for it.
type seenWaiting struct {
	context.Context
	seen chan struct{}
}

func (c *seenWaiting) Done() <-chan struct{} {
	select {
	case c.seen <- struct{}{}:
	default:
	}
	return c.Context.Done()
}

// Unlock, while Extend waits for its answer, ends the hold for Extend, too.
func TestExtend_UnlockOvertakes_IsNotHeld(t *testing.T) {
	t.Parallel()
	s, p, e := testkit.Behind(t)
	h := testkit.MustLock(t, e.Mutex("x"), engine.Lease(20*time.Second))
	p.Pause(faultproxy.All)
	extended := make(chan error, 1)
	go func() { extended <- h.Extend(testkit.Ctx(t), 30*time.Second) }()
	testkit.Eventually(t, "it is in flight", func() bool { return e.Stats().InFlight > 0 })
	released := h.UnlockAsync()
	if err := testkit.Receive(t, extended); !errors.Is(err, engine.ErrNotHeld) || errors.Is(err, engine.ErrReleased) {
		t.Errorf("Extend: %v", err)
	}
	p.Resume()
	if _, err := released.Await(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
	testkit.Clean(t, s)
}

// What cannot be extended says which hold can be, if any.
func TestExtend_Reentry_SaysWhichHoldHasTheLease(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	watched, fixed := testkit.MustLock(t, e.Mutex("w")), testkit.MustLock(t, e.Mutex("f"), engine.Lease(time.Minute))
	under := func(name string, h *engine.Hold, opts ...engine.Option) *engine.Hold {
		return testkit.MustReenter(t, e.Mutex(name), h, opts...)
	}
	ofWatched, ofFixed := under("w", watched), under("f", fixed)
	for what, x := range map[string]struct {
		h    *engine.Hold
		text string // "": it can be extended
	}{
		"a hold under the watchdog":          {watched, "the watchdog renews"},
		"its re-entry":                       {ofWatched, "the watchdog renews"},
		"the re-entry of that, with a lease": {under("w", ofWatched, engine.Lease(time.Minute)), ""},
		"a hold with a lease":                {fixed, ""},
		"a re-entry of a hold with a lease":  {ofFixed, "extend that one"},
		"the re-entry of that":               {under("f", ofFixed), "extend that one"},
	} {
		err := x.h.Extend(testkit.Ctx(t), 2*time.Minute)
		if x.text == "" && err != nil || x.text != "" && (!errors.Is(err, engine.ErrInvalid) || !testkit.HasText(err, x.text)) {
			t.Errorf("Extend of %s: %v, want %q", what, err, x.text)
		}
	}
}

// An Unlock may overtake it: then it says what it says when it comes later.
func TestExtend_UnlockOfItOrItsParentOvertakes_SaysNotHeld(t *testing.T) {
	t.Parallel()
	for name, reenter := range map[string]bool{"a hold": false, "a re-entry whose parent is unlocked": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, e := testkit.Behind(t)
			parent := testkit.MustLock(t, e.Mutex("x"), engine.Lease(20*time.Second))
			h := parent
			if reenter {
				h = testkit.MustReenter(t, e.Mutex("x"), parent, engine.Lease(20*time.Second))
			}
			p.Pause(faultproxy.All)
			extended := make(chan error, 1)
			go func() { extended <- h.Extend(testkit.Ctx(t), 30*time.Second) }()
			testkit.Eventually(t, "it is in flight", func() bool { return e.Stats().InFlight > 0 })
			f := parent.UnlockAsync()
			if err := testkit.Receive(t, extended); !errors.Is(err, engine.ErrNotHeld) || errors.Is(err, engine.ErrReleased) {
				t.Errorf("Extend: %v", err)
			}
			p.Resume()
			if _, err := f.Await(testkit.Ctx(t)); err != nil {
				t.Error(err)
			}
			testkit.Clean(t, s)
		})
	}
}
