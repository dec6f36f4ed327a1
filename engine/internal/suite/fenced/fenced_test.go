package fenced

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

func mustFence(t *testing.T, m engine.Mutex, opts ...engine.Option) *engine.Hold {
	t.Helper()
	h, err := m.Lock(testkit.Ctx(t), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Tokens rise from hold to hold, whichever engine has them, and start at 1. A re-entry has that
// of its hold.
func TestFencedMutex_HoldAfterHold_TokensRise(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	engines := []*engine.Engine{testkit.Open(t, s.URL()), testkit.Open(t, s.URL())}
	for want := int64(1); want <= 20; want++ {
		m := engines[want%2].FencedMutex("x")
		h := mustFence(t, m)
		again, err := m.Lock(h.Context(testkit.Ctx(t)))
		if err != nil {
			t.Fatal(err)
		}
		if h.Token() != want || again.Token() != want || again.Owner() != h.Owner() {
			t.Fatalf("tokens %d and, entered again, %d, want %d", h.Token(), again.Token(), want)
		}
		if got := s.Do("GET", "redisson_lock_token:{x}"); got != strconv.FormatInt(want, 10) {
			t.Fatalf("the counter is %v, want %d", got, want)
		}
		testkit.MustUnlock(t, again)
		if h.Token() != want || h.Err() != nil {
			t.Fatalf("after the re-entry: %d, %v", h.Token(), h.Err())
		}
		testkit.MustUnlock(t, h)
		if h.Token() != want {
			t.Errorf("unlocked, it has %d", h.Token())
		}
	}
}

// A FencedMutex and a Mutex of one name are one lock. What a Mutex holds has no token, so a
// FencedMutex does not re-enter it.
func TestFencedMutex_UnderAHoldWithoutAToken_IsRefused(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	h := testkit.MustLock(t, e.Mutex("x"))
	ctx := h.Context(testkit.Ctx(t))
	if _, err := e.FencedMutex("x").Lock(ctx); !errors.Is(err, engine.ErrKindConflict) || !errors.Is(err, engine.ErrNotAcquired) {
		t.Errorf("under a Mutex: %v", err)
	}
	if _, err := e.FencedMutex("x").TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
		t.Errorf("beside a Mutex: %v", err)
	}
	if _, err := engine.Multi(e.FencedMutex("x")).Lock(ctx); !errors.Is(err, engine.ErrKindConflict) {
		t.Errorf("several: %v", err)
	}
	testkit.MustUnlock(t, h)
	f := mustFence(t, e.FencedMutex("x"))
	testkit.MustUnlock(t, testkit.MustReenter(t, e.Mutex("x"), f))
	testkit.MustUnlock(t, f)
}

func TestFencedMutex_LockAsync_HasTheToken(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	m := e.FencedMutex("x")
	h := mustFence(t, m)
	pending, abandoned := m.LockAsync(testkit.Ctx(t)), m.LockAsync(testkit.Ctx(t))
	if _, err := m.TryLockAsync(testkit.Ctx(t)).Await(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
		t.Errorf("TryLockAsync: %v", err)
	}
	abandoned.Abandon()
	if _, err := abandoned.Await(testkit.Ctx(t)); !errors.Is(err, engine.ErrNotAcquired) {
		t.Errorf("abandoned: %v", err)
	}
	testkit.MustUnlock(t, h)
	got, err := pending.Await(testkit.Ctx(t))
	if err != nil || got.Token() != h.Token()+1 {
		t.Fatalf("%v, %v", got, err)
	}
	pending.Abandon() // it is granted, so it is released
	testkit.Eventually(t, "it is released", func() bool { return len(testkit.Fields(t, s, "x")) == 0 })
	if _, err := (engine.Mutex{}).LockAsync(testkit.Ctx(t)).Await(testkit.Ctx(t)); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("the zero FencedMutex: %v", err)
	}
}

func TestFencedMutex_Do_HasTheToken(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	m := testkit.Open(t, s.URL()).FencedMutex("x")
	var token int64
	if err := m.Do(testkit.Ctx(t), func(ctx context.Context, h *engine.Hold) error {
		token = h.Token()
		ran, err := m.TryDo(context.WithoutCancel(engine.Detach(ctx)), func(context.Context, *engine.Hold) error { return nil })
		if ran || err != nil {
			t.Errorf("held, and it ran: %t, %v", ran, err)
		}
		return nil
	}); err != nil || token != 1 {
		t.Errorf("token %d, %v", token, err)
	}
}

// A counter of another type is ErrWrongType, and nothing is locked. One that is no number is
// what the server says.
func TestFencedMutex_CounterOfAnotherType_IsAnError(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	s.Do("RPUSH", "redisson_lock_token:{x}", "text")
	if _, err := e.FencedMutex("x").Lock(testkit.Ctx(t)); !errors.Is(err, engine.ErrWrongType) {
		t.Errorf("a list: %v", err)
	}
	s.Do("SET", "redisson_lock_token:{y}", "text")
	if _, err := e.FencedMutex("y").Lock(testkit.Ctx(t)); !errors.Is(err, engine.ErrNotAcquired) {
		t.Errorf("a text: %v", err)
	}
	for _, name := range []string{"x", "y"} {
		if left := testkit.Fields(t, s, name); len(left) != 0 {
			t.Errorf("%s: %v", name, left)
		}
	}
}

func TestFencedMutex_Observed_SaysItsKindAndToken(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	grants := make(chan string, 8)
	e := testkit.Open(t, s.URL(), func(c *engine.Config) {
		c.Observer = engine.ObserverFuncs{OnAcquireEnd: func(_ context.Context, a engine.Acquisition, end engine.AcquireEnd) {
			grants <- fmt.Sprint(a.Kind, " ", end.Token)
		}}
	})
	h := mustFence(t, e.FencedMutex("x"), engine.Lease(time.Minute))
	if err := h.Extend(testkit.Ctx(t), time.Hour); err != nil {
		t.Error(err)
	}
	if got := testkit.Receive(t, grants); got != "fenced 1" {
		t.Errorf("told %q", got)
	}
	testkit.MustUnlock(t, h)
}
