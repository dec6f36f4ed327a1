package enginetest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/enginetest"
	"github.com/pawl-lock/pawl/internal/cputime"
)

// patience bounds every wait of these tests.
const patience = 20 * time.Second

func lock(t *testing.T, e *engine.Engine, name string, opts ...engine.Option) *engine.Hold {
	t.Helper()
	h, err := e.Mutex(name).Lock(within(t), opts...)
	if err != nil {
		t.Fatalf("Lock(%q): %v", name, err)
	}
	return h
}

func unlock(t *testing.T, h *engine.Hold) {
	t.Helper()
	if err := h.Unlock(within(t)); err != nil {
		t.Fatalf("Unlock(%q): %v", h.Name(), err)
	}
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// lost waits for the hold's end and checks its reason.
func lost(t *testing.T, h *engine.Hold, reason engine.LostReason) {
	t.Helper()
	select {
	case <-h.Done():
	case <-time.After(patience):
		t.Fatalf("%q was not lost within %v", h.Name(), patience)
	}
	var why *engine.LostError
	if !errors.As(h.Err(), &why) || why.Reason != reason {
		t.Fatalf("%q: %v, want %v", h.Name(), h.Err(), reason)
	}
}

func TestClientsContend(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t)
	other := env.Open()
	byURL, err := engine.Open(within(t), env.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer byURL.Close()
	h := lock(t, env.Engine, "x")
	for _, e := range []*engine.Engine{other, byURL} {
		if _, err := e.Mutex("x").TryLock(within(t)); !errors.Is(err, engine.ErrNotAcquired) {
			t.Fatalf("a second client: %v", err)
		}
	}
	f := other.Mutex("x").LockAsync(within(t))
	unlock(t, h)
	h, err = f.Await(within(t))
	if err != nil {
		t.Fatal(err)
	}
	unlock(t, h)
}

func TestStealEndsAHoldAndKeepsOthersOut(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t)
	h := lock(t, env.Engine, "x")
	env.Steal("x")
	st, err := env.Engine.Mutex("x").State(within(t))
	if err != nil || !st.Locked || st.Mine || len(st.Holders) != 1 || st.Holders[0].ID != enginetest.ForeignOwner || st.TTL < 20*time.Second || st.TTL > 30*time.Second {
		t.Fatalf("State is %+v, %v", st, err)
	}
	lost(t, h, engine.RemovedOnServer)
	if err := h.Unlock(within(t)); !errors.Is(err, engine.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	if _, err := env.Engine.Mutex("x").TryLock(within(t)); !errors.Is(err, engine.ErrNotAcquired) {
		t.Errorf("TryLock: %v", err)
	}
	f := env.Engine.Mutex("x").LockAsync(within(t))
	env.Expire("x")
	h, err = f.Await(within(t))
	if err != nil {
		t.Fatal(err)
	}
	unlock(t, h)
}

func TestStealTakesAFreeLock(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t)
	env.Steal("cron")
	ran, err := env.Engine.Mutex("cron").TryDo(within(t), func(context.Context, *engine.Hold) error {
		t.Error("ran")
		return nil
	})
	if ran || err != nil {
		t.Errorf("ran %t, err %v", ran, err)
	}
}

func TestExpireEndsAHoldAndLetsWaitersIn(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t, func(c *engine.Config) { c.Lease = time.Hour })
	other := env.Open()
	h := lock(t, env.Engine, "x", engine.Lease(time.Hour))
	f := other.Mutex("x").LockAsync(within(t))
	// Before it is subscribed the message reaches nobody, and the hour stands.
	waitFor(t, "the waiter listens", func() bool { return other.Stats().Channels >= 1 })
	env.Expire("x")
	h2, err := f.Await(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Unlock(within(t)); !errors.Is(err, engine.ErrLost) {
		t.Errorf("Unlock of the expired hold: %v", err)
	}
	unlock(t, h2)
}

func TestNamesAreMappedAsTheEngineDoes(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t, func(c *engine.Config) {
		c.NameMapper = func(name string) string { return "app:" + name }
		c.DB = 3
	})
	h := lock(t, env.Engine, "{a}b")
	env.Steal("{a}b")
	lost(t, h, engine.RemovedOnServer)
	env.Expire("{a}b")
	unlock(t, lock(t, env.Engine, "{a}b"))
}

func TestDownAndUp(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t, func(c *engine.Config) { c.CommandTimeout = 200 * time.Millisecond })
	h := lock(t, env.Engine, "x")
	env.Down()
	env.Down()
	if _, err := env.Engine.Mutex("y").TryLock(within(t)); !errors.Is(err, engine.ErrUnavailable) {
		t.Errorf("TryLock on a server that is down: %v", err)
	}
	f := env.Engine.Mutex("y").LockAsync(within(t))
	lost(t, h, engine.NotRenewed)
	env.Up()
	env.Up()
	h, err := f.Await(within(t))
	if err != nil {
		t.Fatal(err)
	}
	unlock(t, h)
}

func TestServerMayBeDownAtTheEnd(t *testing.T) {
	t.Parallel()
	rec := &recorder{TB: t}
	env := enginetest.New(rec)
	env.Down()
	start := cputime.Now()
	rec.end()
	if d := start.Elapsed(); d > 4*time.Second {
		t.Errorf("closing took %v", d)
	}
	if len(rec.errors) > 0 {
		t.Errorf("reported %q", rec.errors)
	}
}

func TestHoldsLeftBehindFailTheTest(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		body func(t *testing.T, env *enginetest.Env)
		want string // in the report; "" for none
	}{
		"held":     {func(t *testing.T, env *enginetest.Env) { lock(t, env.Engine, "forgotten") }, "locks held (1: forgotten)"},
		"second":   {func(t *testing.T, env *enginetest.Env) { lock(t, env.Open(), "forgotten") }, ": forgotten"},
		"unlocked": {func(t *testing.T, env *enginetest.Env) { unlock(t, lock(t, env.Engine, "x")) }, ""},
		"min hold": {func(t *testing.T, env *enginetest.Env) {
			unlock(t, lock(t, env.Engine, "x", engine.MinHold(time.Second)))
		}, ""},
		"stolen": {func(t *testing.T, env *enginetest.Env) {
			h := lock(t, env.Engine, "x")
			env.Steal("x")
			lost(t, h, engine.RemovedOnServer)
		}, ""},
		"closed": {func(t *testing.T, env *enginetest.Env) {
			lock(t, env.Engine, "x")
			if err := env.Engine.Close(); err != nil {
				t.Error(err)
			}
		}, ""},
		"a latch": {func(t *testing.T, env *enginetest.Env) {
			if _, err := env.Engine.Latch("x").TrySetCount(within(t), 1); err != nil {
				t.Error(err)
			}
			env.Steal("x")
			env.Expire("x")
			if n, err := env.Engine.Latch("x").Count(within(t)); n != 1 || err != nil {
				t.Errorf("the count is %d, %v", n, err)
			}
		}, "enginetest: Steal(\"x\"): it is no lock\nenginetest: Expire(\"x\"): it is no lock"},
		"typing error": {func(t *testing.T, env *enginetest.Env) { env.Expire("orderz") }, `Expire("orderz"): nobody holds it`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := &recorder{TB: t}
			tc.body(t, enginetest.New(rec))
			rec.end()
			switch report := strings.Join(rec.errors, "\n"); {
			case tc.want == "" && report != "":
				t.Errorf("reported %q", report)
			case !strings.Contains(report, tc.want):
				t.Errorf("reported %q, want %q in it", report, tc.want)
			}
		})
	}
}

// recorder is a test inside a test: it keeps errors and cleanups to itself.
type recorder struct {
	testing.TB

	mu       sync.Mutex
	errors   []string
	cleanups []func()
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// end runs the cleanups as the end of a test does.
func (r *recorder) end() {
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func TestReplicasAcknowledgeWhatIsAskedOfThem(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t)
	m := env.Engine.Mutex("x")
	if _, err := m.TryLock(t.Context(), engine.Acked(engine.AllReplicas)); !errors.Is(err, engine.ErrNotAcked) {
		t.Errorf("without replicas: %v", err)
	}
	env.Replicas(2)
	h, err := m.TryLock(t.Context(), engine.Acked(engine.AllReplicas))
	if err != nil {
		t.Fatal(err)
	}
	if h.Acked() != 2 {
		t.Errorf("%d acknowledged", h.Acked())
	}
	if err := h.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}
