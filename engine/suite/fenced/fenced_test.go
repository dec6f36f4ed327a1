package fenced

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/kit"
)

func mustFence(t *testing.T, m engine.Mutex, opts ...engine.Option) *engine.Hold {
	t.Helper()
	h, err := m.Lock(kit.Ctx(t), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Tokens rise from hold to hold, whichever engine has them, and start at 1. A re-entry has that
// of its hold.
func TestFencedMutex_HoldAfterHold_TokensRise(t *testing.T) {
	t.Parallel()
	s := kit.Server(t)
	engines := []*engine.Engine{kit.Open(t, s.URL()), kit.Open(t, s.URL())}
	for want := int64(1); want <= 20; want++ {
		m := engines[want%2].FencedMutex("x")
		h := mustFence(t, m)
		again, err := m.Lock(h.Context(kit.Ctx(t)))
		if err != nil {
			t.Fatal(err)
		}
		if h.Token() != want || again.Token() != want || again.Owner() != h.Owner() {
			t.Fatalf("tokens %d and, entered again, %d, want %d", h.Token(), again.Token(), want)
		}
		if got := s.Do("GET", "redisson_lock_token:{x}"); got != strconv.FormatInt(want, 10) {
			t.Fatalf("the counter is %v, want %d", got, want)
		}
		kit.MustUnlock(t, again)
		if h.Token() != want || h.Err() != nil {
			t.Fatalf("after the re-entry: %d, %v", h.Token(), h.Err())
		}
		kit.MustUnlock(t, h)
		if h.Token() != want {
			t.Errorf("unlocked, it has %d", h.Token())
		}
	}
}

// A FencedMutex and a Mutex of one name are one lock. What a Mutex holds has no token, so a
// FencedMutex does not re-enter it.
func TestFencedMutex_UnderAHoldWithoutAToken_IsRefused(t *testing.T) {
	t.Parallel()
	s := kit.Server(t)
	e := kit.Open(t, s.URL())
	h := kit.MustLock(t, e.Mutex("x"))
	ctx := h.Context(kit.Ctx(t))
	if _, err := e.FencedMutex("x").Lock(ctx); !errors.Is(err, engine.ErrKind) || !errors.Is(err, engine.ErrNotAcquired) {
		t.Errorf("under a Mutex: %v", err)
	}
	if _, err := e.FencedMutex("x").TryLock(kit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
		t.Errorf("beside a Mutex: %v", err)
	}
	if _, err := engine.Multi(e.FencedMutex("x")).Lock(ctx); !errors.Is(err, engine.ErrKind) {
		t.Errorf("several: %v", err)
	}
	kit.MustUnlock(t, h)
	f := mustFence(t, e.FencedMutex("x"))
	kit.MustUnlock(t, kit.MustReenter(t, e.Mutex("x"), f))
	kit.MustUnlock(t, f)
}

func TestFencedMutex_LockAsync_HasTheToken(t *testing.T) {
	t.Parallel()
	s := kit.Server(t)
	e := kit.Open(t, s.URL())
	m := e.FencedMutex("x")
	h := mustFence(t, m)
	pending, abandoned := m.LockAsync(kit.Ctx(t)), m.LockAsync(kit.Ctx(t))
	if _, err := m.TryLockAsync(kit.Ctx(t)).Await(kit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
		t.Errorf("TryLockAsync: %v", err)
	}
	abandoned.Abandon()
	if _, err := abandoned.Await(kit.Ctx(t)); !errors.Is(err, engine.ErrNotAcquired) {
		t.Errorf("abandoned: %v", err)
	}
	kit.MustUnlock(t, h)
	got, err := pending.Await(kit.Ctx(t))
	if err != nil || got.Token() != h.Token()+1 {
		t.Fatalf("%v, %v", got, err)
	}
	pending.Abandon() // it is granted, so it is released
	kit.Eventually(t, "it is released", func() bool { return len(kit.Fields(t, s, "x")) == 0 })
	if _, err := (engine.Mutex{}).LockAsync(kit.Ctx(t)).Await(kit.Ctx(t)); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("the zero FencedMutex: %v", err)
	}
}

func TestFencedMutex_Do_HasTheToken(t *testing.T) {
	t.Parallel()
	s := kit.Server(t)
	m := kit.Open(t, s.URL()).FencedMutex("x")
	var token int64
	if err := m.Do(kit.Ctx(t), func(ctx context.Context, h *engine.Hold) error {
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
	s := kit.Server(t)
	e := kit.Open(t, s.URL())
	s.Do("RPUSH", "redisson_lock_token:{x}", "text")
	if _, err := e.FencedMutex("x").Lock(kit.Ctx(t)); !errors.Is(err, engine.ErrWrongType) {
		t.Errorf("a list: %v", err)
	}
	s.Do("SET", "redisson_lock_token:{y}", "text")
	if _, err := e.FencedMutex("y").Lock(kit.Ctx(t)); !errors.Is(err, engine.ErrNotAcquired) {
		t.Errorf("a text: %v", err)
	}
	for _, name := range []string{"x", "y"} {
		if left := kit.Fields(t, s, name); len(left) != 0 {
			t.Errorf("%s: %v", name, left)
		}
	}
}

func TestFencedMutex_Hook_SaysItsKind(t *testing.T) {
	t.Parallel()
	s := kit.Server(t)
	kinds := make(chan string, 8)
	e := kit.Open(t, s.URL(), func(c *engine.Config) {
		c.Hooks.Acquired = func(ev engine.AcquiredEvent) { kinds <- ev.Kind }
	})
	h := mustFence(t, e.FencedMutex("x"), engine.Lease(time.Minute))
	if err := h.Extend(kit.Ctx(t), time.Hour); err != nil {
		t.Error(err)
	}
	if got := kit.Receive(t, kinds); got != "fenced" {
		t.Errorf("kind %q", got)
	}
	kit.MustUnlock(t, h)
}
