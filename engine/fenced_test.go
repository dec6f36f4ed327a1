package engine

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"
)

func mustFence(t *testing.T, m Mutex, opts ...Option) *Hold {
	t.Helper()
	h, err := m.Lock(ctxT(t), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Tokens rise from hold to hold, whichever engine has them, and start at 1. A re-entry has that
// of its hold.
func TestTokensRiseFromHoldToHold(t *testing.T) {
	t.Parallel()
	s := server(t)
	engines := []*Engine{open(t, s.URL()), open(t, s.URL())}
	for want := int64(1); want <= 20; want++ {
		m := engines[want%2].FencedMutex("x")
		h := mustFence(t, m)
		again, err := m.Lock(h.Context(ctxT(t)))
		if err != nil {
			t.Fatal(err)
		}
		if h.Token() != want || again.Token() != want || again.Owner() != h.Owner() {
			t.Fatalf("tokens %d and, entered again, %d, want %d", h.Token(), again.Token(), want)
		}
		if got := s.Do("GET", "redisson_lock_token:{x}"); got != strconv.FormatInt(want, 10) {
			t.Fatalf("the counter is %v, want %d", got, want)
		}
		mustUnlock(t, again)
		if h.Token() != want || h.Err() != nil {
			t.Fatalf("after the re-entry: %d, %v", h.Token(), h.Err())
		}
		mustUnlock(t, h)
		if h.Token() != want {
			t.Errorf("unlocked, it has %d", h.Token())
		}
	}
}

// Each of many that contend in one process has a grant, and a token, of its own: the lock is
// never handed over silently.
func TestTokensOfWaitersOfOneProcessRise(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := handsOver(t, s.URL())
	m := e.FencedMutex("x")
	const n = 50
	var futures []*Future[*Hold]
	for range n {
		futures = append(futures, m.LockAsync(ctxT(t)))
	}
	last, owners, before := int64(0), make(map[string]bool), uint64(0)
	eventually(t, "the first has it", func() bool { return viewOf(e, "x").Hold })
	before = e.Stats().Commands
	for _, f := range futures { // first come, first served
		h, err := f.Await(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		if h.Token() <= last {
			t.Fatalf("token %d after %d", h.Token(), last)
		}
		last = h.Token()
		owners[h.Owner()] = true
		if held := fields(t, s, "x"); len(held) != 1 || held[h.Owner()] != "1" {
			t.Fatalf("the server has %v, and it is %s's", held, h.Owner())
		}
		mustUnlock(t, h)
	}
	if st := e.Stats(); st.HandedOver != n-1 || last != n || len(owners) != n {
		t.Errorf("%d passed on, last token %d, %d owners", st.HandedOver, last, len(owners))
	}
	// A command for each who was next, and the last release; and perhaps the channel and a look.
	if used := e.Stats().Commands - before; used > n+2 {
		t.Errorf("%d commands for %d holds", used, n)
	}
}

// A FencedMutex and a Mutex of one name are one lock. What a Mutex holds has no token, so a
// FencedMutex does not re-enter it.
func TestAFencedMutexDoesNotReenterAHoldWithoutAToken(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	h := mustLock(t, e.Mutex("x"))
	ctx := h.Context(ctxT(t))
	if _, err := e.FencedMutex("x").Lock(ctx); !errors.Is(err, ErrKind) || !errors.Is(err, ErrNotAcquired) {
		t.Errorf("under a Mutex: %v", err)
	}
	if _, err := e.FencedMutex("x").TryLock(ctxT(t)); !errors.Is(err, ErrHeld) {
		t.Errorf("beside a Mutex: %v", err)
	}
	if _, err := Multi(e.FencedMutex("x")).Lock(ctx); !errors.Is(err, ErrKind) {
		t.Errorf("several: %v", err)
	}
	mustUnlock(t, h)
	f := mustFence(t, e.FencedMutex("x"))
	mustUnlock(t, mustReenter(t, e.Mutex("x"), f))
	mustUnlock(t, f)
}

func TestAFutureOfAFencedMutexIsOne(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	m := e.FencedMutex("x")
	h := mustFence(t, m)
	pending, abandoned := m.LockAsync(ctxT(t)), m.LockAsync(ctxT(t))
	if _, err := m.TryLockAsync(ctxT(t)).Await(ctxT(t)); !errors.Is(err, ErrHeld) {
		t.Errorf("TryLockAsync: %v", err)
	}
	abandoned.Abandon()
	if _, err := abandoned.Await(ctxT(t)); !errors.Is(err, ErrNotAcquired) {
		t.Errorf("abandoned: %v", err)
	}
	mustUnlock(t, h)
	got, err := pending.Await(ctxT(t))
	if err != nil || got.Token() != h.Token()+1 {
		t.Fatalf("%v, %v", got, err)
	}
	pending.Abandon() // it is granted, so it is released
	eventually(t, "it is released", func() bool { return len(fields(t, s, "x")) == 0 })
	if _, err := (Mutex{}).LockAsync(ctxT(t)).Await(ctxT(t)); !errors.Is(err, ErrInvalid) {
		t.Errorf("the zero FencedMutex: %v", err)
	}
}

func TestDoOfAFencedMutexHasTheToken(t *testing.T) {
	t.Parallel()
	s := server(t)
	m := open(t, s.URL()).FencedMutex("x")
	var token int64
	if err := m.Do(ctxT(t), func(ctx context.Context, h *Hold) error {
		token = h.Token()
		ran, err := m.TryDo(context.WithoutCancel(Detach(ctx)), func(context.Context, *Hold) error { return nil })
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
func TestACounterThatCountsNothing(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	s.Do("RPUSH", "redisson_lock_token:{x}", "text")
	if _, err := e.FencedMutex("x").Lock(ctxT(t)); !errors.Is(err, ErrWrongType) {
		t.Errorf("a list: %v", err)
	}
	s.Do("SET", "redisson_lock_token:{y}", "text")
	if _, err := e.FencedMutex("y").Lock(ctxT(t)); !errors.Is(err, ErrNotAcquired) {
		t.Errorf("a text: %v", err)
	}
	for _, name := range []string{"x", "y"} {
		if left := fields(t, s, name); len(left) != 0 {
			t.Errorf("%s: %v", name, left)
		}
	}
}

func TestTheHookOfAFencedMutexSaysSo(t *testing.T) {
	t.Parallel()
	s := server(t)
	kinds := make(chan string, 8)
	e := open(t, s.URL(), func(c *Config) {
		c.Hooks.Acquired = func(ev AcquiredEvent) { kinds <- ev.Kind }
	})
	h := mustFence(t, e.FencedMutex("x"), Lease(time.Minute))
	if err := h.Extend(ctxT(t), time.Hour); err != nil {
		t.Error(err)
	}
	if got := receive(t, kinds); got != "fenced" {
		t.Errorf("kind %q", got)
	}
	mustUnlock(t, h)
}
