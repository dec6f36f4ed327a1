package engine

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/drive"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// The answer to an Extend that was given up must not be taken for that of the next
// one, which asked for more.
func TestExtendIsNotToldTheAnswerToTheOneBefore(t *testing.T) {
	t.Parallel()
	s, p, e := behind(t)
	h := mustLock(t, e.Mutex("x"), Lease(20*time.Second))
	p.Pause(faultproxy.All)
	ctx, cancel := context.WithCancel(context.Background())
	gaveUp := make(chan error, 1)
	go func() { gaveUp <- h.Extend(ctx, 30*time.Second) }()
	eventually(t, "it is in flight", func() bool { return e.Stats().InFlight > 0 })
	cancel()
	if err := receive(t, gaveUp); !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("the first: %v", err)
	}
	second := make(chan error, 1)
	go func() { second <- h.Extend(ctxT(t), time.Hour) }()
	eventually(t, "the second waits", func() bool {
		oneOf(h).Shard().Lock()
		defer oneOf(h).Shard().Unlock()
		return oneOf(h).Extends()
	})
	p.Resume()
	if err := receive(t, second); err != nil {
		t.Fatal(err)
	}
	if left := pttl(t, s, "x"); left < 50*time.Minute {
		t.Errorf("Extend by an hour succeeded, and the key has %v left", left)
	}
	mustUnlock(t, h)
	clean(t, s)
}

// One that gives up before it was sent makes way for those behind it.
func TestExtendThatGivesUpInTheQueueLetsTheNextOneTakeItsTurn(t *testing.T) {
	t.Parallel()
	s, p, e := behind(t)
	m := e.Mutex("x")
	h := mustLock(t, m, Lease(20*time.Second))
	p.Pause(faultproxy.All)
	reentry := m.LockAsync(h.Context(ctxT(t)))
	eventually(t, "the re-entry is in flight", func() bool { return e.Stats().InFlight > 0 })
	extend := func(ctx context.Context, d time.Duration) <-chan error {
		waits, extended := &seenWaiting{ctx, make(chan struct{}, 1)}, make(chan error, 1)
		go func() { extended <- h.Extend(waits, d) }()
		receive(t, waits.seen)
		return extended
	}
	ctx, cancel := context.WithCancel(context.Background())
	first := extend(ctx, time.Minute)
	second := extend(ctxT(t), time.Hour)
	cancel()
	if err := receive(t, first); !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("the first: %v", err)
	}
	p.Resume()
	if err := receive(t, second); err != nil {
		t.Fatalf("the second: %v", err)
	}
	if left := pttl(t, s, "x"); left < 50*time.Minute {
		t.Errorf("Extend by an hour succeeded, and the key has %v left", left)
	}
	if _, err := reentry.Await(ctxT(t)); err != nil {
		t.Error(err)
	}
	mustUnlock(t, h)
	clean(t, s)
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
func TestExtendThatUnlockOvertakesIsNotHeld(t *testing.T) {
	t.Parallel()
	s, p, e := behind(t)
	h := mustLock(t, e.Mutex("x"), Lease(20*time.Second))
	p.Pause(faultproxy.All)
	extended := make(chan error, 1)
	go func() { extended <- h.Extend(ctxT(t), 30*time.Second) }()
	eventually(t, "it is in flight", func() bool { return e.Stats().InFlight > 0 })
	released := h.UnlockAsync()
	if err := receive(t, extended); !errors.Is(err, ErrNotHeld) || errors.Is(err, ErrReleased) {
		t.Errorf("Extend: %v", err)
	}
	p.Resume()
	if _, err := released.Await(ctxT(t)); err != nil {
		t.Error(err)
	}
	clean(t, s)
}

// What cannot be extended says which hold can be, if any.
func TestExtendSaysWhichHoldHasTheLease(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	watched, fixed := mustLock(t, e.Mutex("w")), mustLock(t, e.Mutex("f"), Lease(time.Minute))
	under := func(name string, h *Hold, opts ...Option) *Hold { return mustReenter(t, e.Mutex(name), h, opts...) }
	ofWatched, ofFixed := under("w", watched), under("f", fixed)
	for what, x := range map[string]struct {
		h    *Hold
		text string // "": it can be extended
	}{
		"a hold under the watchdog":          {watched, "the watchdog renews"},
		"its re-entry":                       {ofWatched, "the watchdog renews"},
		"the re-entry of that, with a lease": {under("w", ofWatched, Lease(time.Minute)), ""},
		"a hold with a lease":                {fixed, ""},
		"a re-entry of a hold with a lease":  {ofFixed, "extend that one"},
		"the re-entry of that":               {under("f", ofFixed), "extend that one"},
	} {
		err := x.h.Extend(ctxT(t), 2*time.Minute)
		if x.text == "" && err != nil || x.text != "" && (!errors.Is(err, ErrInvalid) || !hasText(err, x.text)) {
			t.Errorf("Extend of %s: %v, want %q", what, err, x.text)
		}
	}
}

// An Unlock may overtake it: then it says what it says when it comes later.
func TestExtendThatAnUnlockOvertakesSaysThatTheLockIsNotHeld(t *testing.T) {
	t.Parallel()
	for name, reenter := range map[string]bool{"a hold": false, "a re-entry whose parent is unlocked": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, e := behind(t)
			parent := mustLock(t, e.Mutex("x"), Lease(20*time.Second))
			h := parent
			if reenter {
				h = mustReenter(t, e.Mutex("x"), parent, Lease(20*time.Second))
			}
			p.Pause(faultproxy.All)
			extended := make(chan error, 1)
			go func() { extended <- h.Extend(ctxT(t), 30*time.Second) }()
			eventually(t, "it is in flight", func() bool { return e.Stats().InFlight > 0 })
			f := parent.UnlockAsync()
			if err := receive(t, extended); !errors.Is(err, ErrNotHeld) || errors.Is(err, ErrReleased) {
				t.Errorf("Extend: %v", err)
			}
			p.Resume()
			if _, err := f.Await(ctxT(t)); err != nil {
				t.Error(err)
			}
			clean(t, s)
		})
	}
}

// One that waits for its turn behind another may give up at the same moment, because its
// context is that of the hold.
func TestExtendThatGivesUpWithItsHoldSaysThatTheLockIsNotHeld(t *testing.T) {
	t.Parallel()
	e := open(t, server(t).URL())
	h := mustLock(t, e.Mutex("x"), Lease(20*time.Second))
	x := drive.NewExtension(time.Second) // behind another
	mustUnlock(t, h)
	if err := oneOf(h).GiveUpExtend(x, ErrReleased); err != ErrNotHeld {
		t.Errorf("Extend: %v", err)
	}
}

// slowEnd is what ends with a hold, when the test says so.
type slowEnd chan struct{}

func (c slowEnd) End(error) { <-c }

// When its time is over, the hold may have ended, and its name be used for another one.
func TestExtendThatGivesUpAsksForItsConnectionUnderTheLock(t *testing.T) {
	t.Parallel()
	e := open(t, server(t).URL(), func(c *Config) { c.CommandTimeout = 200 * time.Millisecond })
	h := mustLock(t, e.Mutex("x"), Lease(time.Minute))
	sh, r := oneOf(h).Shard(), oneOf(h).Res
	again, err := e.Mutex("x").Lock(h.Context(ctxT(t)))
	if err != nil {
		t.Fatal(err)
	}
	// Nothing is sent while contexts end, so only a call that gives up reads the route.
	slow := make(slowEnd)
	if err := oneOf(again).bind(slow); err != nil {
		t.Fatal(err)
	}
	left := make(chan error, 1)
	go func() { left <- again.Unlock(ctxT(t)) }()
	eventually(t, "the re-entry ends", func() bool { return again.Err() != nil })
	extended := make(chan error, 1)
	go func() { extended <- h.Extend(ctxT(t), 2*time.Minute) }()
	is := func(what string) func() bool {
		return func() bool {
			b := make([]byte, 1<<20)
			for stack := range strings.SplitSeq(string(b[:runtime.Stack(b, true)]), "\n\n") {
				if strings.Contains(stack, what) && strings.Contains(stack, "ExtendBy") && strings.Contains(stack, t.Name()) {
					return true
				}
			}
			return len(extended) > 0 // before anybody looked
		}
	}
	eventually(t, "it waits", is("[select"))
	sh.Lock()
	eventually(t, "it gives up", is("GiveUpExtend"))
	route := r.Route
	r.Route = 0 // as for a name that nobody uses; the race detector looks
	r.Route = route
	sh.Unlock()
	if err := receive(t, extended); !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, ErrUnavailable) {
		t.Errorf("Extend: %v", err)
	}
	close(slow)
	if err := receive(t, left); err != nil {
		t.Errorf("Unlock of the re-entry: %v", err)
	}
	mustUnlock(t, h)
}
