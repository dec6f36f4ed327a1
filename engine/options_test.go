package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

func TestLock_BadName_IsInvalid(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	for name, text := range map[string]string{
		"":                         "must not be empty",
		strings.Repeat("x", 1<<20): "must be at most 65536 bytes, not 1048576",
		"a\x00b":                   "zero byte",
	} {
		m := e.Mutex(name)
		errs := testkit.EveryLock(testkit.Ctx(t), m)
		_, errs["State"] = m.State(testkit.Ctx(t))
		_, errs["ForceUnlock"] = m.ForceUnlock(testkit.Ctx(t))
		testkit.WantInvalid(t, errs, text)
		for what, err := range errs {
			if len(err.Error()) > 1000 {
				t.Errorf("%s: the error is %d bytes long", what, len(err.Error()))
			}
		}
	}
	longest := e.Mutex(strings.Repeat("y", 64<<10))
	h := testkit.MustLock(t, longest)
	_, err := longest.TryLock(testkit.Ctx(t))
	if err == nil || len(err.Error()) > 1000 {
		t.Errorf("TryLock: an error of %d bytes", len(err.Error()))
	}
	testkit.MustUnlock(t, h)
	mapped := testkit.Open(t, s.URL(), func(c *engine.Config) { c.NameMapper = func(string) string { return "" } })
	testkit.WantInvalid(t, testkit.EveryLock(testkit.Ctx(t), mapped.Mutex("x")), "must not be empty")
	testkit.Clean(t, s)
}

func TestMutex_ZeroValue_IsInvalid(t *testing.T) {
	t.Parallel()
	for _, m := range []engine.Mutex{{}} {
		errs := testkit.EveryLock(testkit.Ctx(t), m)
		_, errs["State"] = m.State(testkit.Ctx(t))
		_, errs["ForceUnlock"] = m.ForceUnlock(testkit.Ctx(t))
		testkit.WantInvalid(t, errs, "zero Mutex")
		m.LockAsync(testkit.Ctx(t)).Abandon()
		if m.Name() != "" {
			t.Errorf("Name: %q", m.Name())
		}
	}
}

func TestLock_BadOptions_AreInvalid(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	m := e.Mutex("x")
	ms := time.Millisecond
	for _, c := range []struct {
		opts []engine.Option
		text string
	}{
		{[]engine.Option{engine.Lease(0)}, "Lease (0s) must be at least 1ms"},
		{[]engine.Option{engine.Lease(-time.Second)}, "Lease (-1s) must be at least 1ms"},
		{[]engine.Option{engine.Lease(999 * time.Microsecond)}, "Lease (999µs) must be at least 1ms"},
		{[]engine.Option{engine.Lease(4 * ms)}, "Lease (4ms) must be longer than the safety margin (5ms)"},
		{[]engine.Option{engine.Lease(1 << 62)}, "Lease (1281023h53m38.427387904s) must be at most"},
		{[]engine.Option{engine.Lease(time.Second), engine.MaxHold(time.Second)}, "Lease and MaxHold exclude each other"},
		{[]engine.Option{engine.MaxHold(0)}, "MaxHold (0s) must be"},
		{[]engine.Option{engine.MaxHold(-1)}, "MaxHold (-1ns) must be"},
		{[]engine.Option{engine.MinHold(0)}, "MinHold (0s) must be positive"},
		{[]engine.Option{engine.Lease(time.Second), engine.MinHold(2 * time.Second)}, "MinHold (2s) must not exceed Lease (1s)"},
		{[]engine.Option{engine.MaxHold(10 * time.Second), engine.MinHold(20 * time.Second)}, "MinHold (20s) must not exceed MaxHold (10s)"},
		{[]engine.Option{engine.Lease(time.Second), nil}, "a nil Option"},
		{[]engine.Option{engine.Backoff(ms, ms)}, "Backoff(1ms, 1ms) is for a SpinMutex"},
	} {
		testkit.WantInvalid(t, testkit.EveryLock(testkit.Ctx(t), m, c.opts...), c.text)
	}
	for _, b := range [][2]time.Duration{{0, ms}, {ms - 1, ms}, {2 * ms, ms}, {ms, time.Second + 1}, {-ms, -ms}} {
		testkit.WantInvalid(t, testkit.EveryLock(testkit.Ctx(t), e.SpinMutex("x"), engine.Backoff(b[0], b[1])), "must go up, and be within 1ms and 1s")
	}
	for _, d := range []time.Duration{0, -time.Second} {
		testkit.WantInvalid(t, map[string]error{
			"Lock":      testkit.ErrOf(m.Lock(testkit.Ctx(t), engine.Wait(d))),
			"LockAsync": testkit.ErrOf(m.LockAsync(testkit.Ctx(t), engine.Wait(d)).Result()),
		}, "Wait ("+d.String()+") must be positive")
	}
	testkit.WantInvalid(t, map[string]error{
		"TryLock":      testkit.ErrOf(m.TryLock(testkit.Ctx(t), engine.Wait(time.Second))),
		"TryLockAsync": testkit.ErrOf(m.TryLockAsync(testkit.Ctx(t), engine.Wait(time.Second)).Result()),
	}, "Wait does not go with TryLock")
	if _, err := m.ForceUnlock(testkit.Ctx(t), nil); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("ForceUnlock with a nil option: %v", err)
	}

	h := testkit.MustLock(t, m, engine.Lease(10*time.Second))
	for d, text := range map[time.Duration]string{0: "between 1ms", -time.Second: "between 1ms", 1 << 62: "between 1ms", 3 * ms: "safety margin"} {
		if err := h.Extend(testkit.Ctx(t), d); !errors.Is(err, engine.ErrInvalid) || !testkit.HasText(err, text) {
			t.Errorf("Extend(%v): %v", d, err)
		}
	}
	if err := h.Err(); err != nil {
		t.Errorf("bad input cost the hold: %v", err)
	}
	testkit.MustUnlock(t, h)
	if n := e.Stats().Commands; n > 40 {
		t.Errorf("%d commands were sent for requests that cannot be", n)
	}
	testkit.Clean(t, s)
}

func TestLock_KeyOfAnotherType_IsWrongType(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	s.Do("SET", "x", "a lock of another library")
	m := e.Mutex("x")
	errs := testkit.EveryLock(testkit.Ctx(t), m)
	for what, err := range errs {
		if !errors.Is(err, engine.ErrWrongType) || !errors.Is(err, engine.ErrNotAcquired) {
			t.Errorf("%s: %v, want ErrWrongType and ErrNotAcquired", what, err)
		}
	}
	if _, err := m.State(testkit.Ctx(t)); !errors.Is(err, engine.ErrWrongType) {
		t.Errorf("State: %v", err)
	}
	if _, err := m.ForceUnlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrWrongType) {
		t.Errorf("ForceUnlock: %v", err)
	}
	if v := s.Do("GET", "x"); v != "a lock of another library" {
		t.Errorf("the key is %v now", v)
	}
	s.Do("DEL", "x")
	testkit.MustUnlock(t, testkit.MustLock(t, m))
	// A hash that is no lock: it is held by somebody, as far as one can see.
	s.Do("HSET", "h", "name", "Ada")
	if _, err := e.Mutex("h").TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
		t.Errorf("TryLock of a hash: %v", err)
	}
	if _, err := e.Mutex("h").State(testkit.Ctx(t)); !errors.Is(err, engine.ErrWrongType) {
		t.Errorf("State of a hash: %v", err)
	}
}

func TestUnlock_Twice_IsNotHeld(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	h := testkit.MustLock(t, e.Mutex("x"))
	testkit.MustUnlock(t, h)
	before := e.Stats().Commands
	if err := h.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrNotHeld) {
		t.Errorf("Unlock: %v", err)
	}
	if _, err := h.UnlockAsync().Result(); !errors.Is(err, engine.ErrNotHeld) {
		t.Errorf("UnlockAsync: %v", err)
	}
	if err := h.Extend(testkit.Ctx(t), time.Minute); !errors.Is(err, engine.ErrNotHeld) && !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("Extend: %v", err)
	}
	if n := e.Stats().Commands - before; n != 0 {
		t.Errorf("%d commands were sent", n)
	}
	// The second Unlock cannot touch the owner that came in meanwhile.
	other := testkit.MustLock(t, testkit.Open(t, s.URL()).Mutex("x"))
	_ = h.Unlock(testkit.Ctx(t))
	if f := testkit.Fields(t, s, "x"); f[other.Owner()] != "1" {
		t.Errorf("hash is %v", f)
	}
	testkit.MustUnlock(t, other)
	testkit.Clean(t, s)
}

func TestLock_AfterClose_IsClosed(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	m := e.Mutex("x")
	h, fixed := testkit.MustLock(t, m), testkit.MustLock(t, e.Mutex("y"), engine.Lease(time.Minute))
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for what, err := range testkit.EveryLock(testkit.Ctx(t), m) {
		if !errors.Is(err, engine.ErrClosed) || !errors.Is(err, engine.ErrNotAcquired) {
			t.Errorf("%s: %v, want ErrClosed and ErrNotAcquired", what, err)
		}
	}
	for what, err := range map[string]error{
		"State": testkit.ErrOf(m.State(testkit.Ctx(t))), "ForceUnlock": testkit.ErrOf(m.ForceUnlock(testkit.Ctx(t))), "Ping": e.Ping(testkit.Ctx(t)),
	} {
		if !errors.Is(err, engine.ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", what, err)
		}
	}
	testkit.WantLost(t, "Unlock", h.Unlock(testkit.Ctx(t)), engine.EngineClosed)
	testkit.WantLost(t, "UnlockAsync", testkit.ErrOf(h.UnlockAsync().Result()), engine.EngineClosed)
	testkit.WantLost(t, "Extend", fixed.Extend(testkit.Ctx(t), time.Minute), engine.EngineClosed)
	testkit.WantLost(t, "Err", h.Err(), engine.EngineClosed)
	if err := e.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if err := e.Shutdown(testkit.Ctx(t)); err != nil {
		t.Errorf("Shutdown after Close: %v", err)
	}
	_, _ = e.Stats(), e.ID()
	testkit.Clean(t, s)
}

func TestEngine_NilContext_IsInvalidAndLeavesNothing(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	var none context.Context
	for range 3 {
		for what, err := range map[string]error{
			"Open": testkit.ErrOf(engine.Open(none, s.URL())), "New": testkit.ErrOf(engine.New(none, engine.Config{Addrs: []string{s.Addr()}})),
			"New, lazy": testkit.ErrOf(engine.New(none, engine.Config{Addrs: []string{s.Addr()}, Lazy: true})),
		} {
			if !errors.Is(err, engine.ErrInvalid) || !testkit.HasText(err, "the context must not be nil") {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	// That nothing runs on is seen by TestMain, which looks for goroutines.

	e := testkit.Open(t, s.URL())
	m := e.Mutex("x")
	fixed := testkit.MustLock(t, e.Mutex("fixed"), engine.Lease(time.Minute))
	waiting := e.Mutex("fixed").LockAsync(testkit.Ctx(t))
	errs := testkit.EveryLock(none, m)
	errs["LockAsync"] = testkit.ErrOf(m.LockAsync(none).Result())
	errs["TryLockAsync"] = testkit.ErrOf(m.TryLockAsync(none).Result())
	errs["State"] = testkit.ErrOf(m.State(none))
	errs["ForceUnlock"] = testkit.ErrOf(e.Mutex("fixed").ForceUnlock(none))
	errs["Ping"] = e.Ping(none)
	errs["Extend"] = fixed.Extend(none, time.Hour)
	errs["Await"] = testkit.ErrOf(waiting.Await(none))
	errs["Detach"] = context.Cause(engine.Detach(none))
	errs["Lock under the Context"] = testkit.ErrOf(m.Lock(engine.Detach(none)))
	errs["Shutdown"] = e.Shutdown(none)
	for what, err := range errs {
		if !errors.Is(err, engine.ErrInvalid) || !testkit.HasText(err, "the context must not be nil") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := errs["Await"]; !errors.Is(err, engine.ErrPending) {
		t.Errorf("Await: %v", err)
	}
	if err := fixed.Err(); err != nil {
		t.Errorf("it was lost: %v", err)
	}
	// Unlock still gives the lock back, and AwaitAll and AwaitAny let go of what
	// they were given.
	if err := fixed.Unlock(none); !errors.Is(err, engine.ErrInvalid) || !errors.Is(err, engine.ErrOutcomeUnknown) {
		t.Errorf("Unlock: %v", err)
	}
	h, err := waiting.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if h, err := waiting.Await(none); err != nil || h == nil {
		t.Errorf("Await of what is complete: %v, %v", h, err)
	}
	testkit.MustUnlock(t, h)
	if _, err := engine.AwaitAll(none, m.LockAsync(testkit.Ctx(t))); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("AwaitAll: %v", err)
	}
	if _, _, err := engine.AwaitAny(none, m.LockAsync(testkit.Ctx(t)), m.LockAsync(testkit.Ctx(t))); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("AwaitAny: %v", err)
	}
	testkit.Eventually(t, "nothing is held or waited for", func() bool { st := e.Stats(); return st.Held+st.Waiting == 0 })
	testkit.Clean(t, s, e)
}

func TestErrors_Text_IsForPeople(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	s.Do("SET", "text", "of another library")
	under := testkit.MustLock(t, e.Mutex("y")).Context(testkit.Ctx(t))
	for want, err := range map[string]error{
		`engine: lock "text" not acquired: key is of another type: WRONGTYPE Operation against a key holding the wrong kind of value`:                              testkit.ErrOf(e.Mutex("text").TryLock(testkit.Ctx(t))),
		`engine: lock "text": key is of another type: WRONGTYPE Operation against a key holding the wrong kind of value`:                                           testkit.ErrOf(e.Mutex("text").State(testkit.Ctx(t))),
		`engine: lock "z" not acquired: invalid argument: Lease (4ms) must be longer than the safety margin (5ms): such a hold would be over before it is granted`: testkit.ErrOf(e.Mutex("z").TryLock(testkit.Ctx(t), engine.Lease(4*time.Millisecond))),
		`engine: lock not acquired: invalid argument: the name of a lock must not be empty`:                                                                        testkit.ErrOf(e.Mutex("").TryLock(testkit.Ctx(t))),
		`engine: lock "y" not acquired: held by this context already`:                                                                                              testkit.ErrOf(e.Mutex("y").TryLock(under, engine.NonReentrant())),
		`engine: lock "z" not acquired: 0 of 1 replicas acknowledged (AckTimeout 1s); see that they are attached and keep up, or ask for fewer`:                    testkit.ErrOf(e.Mutex("z").TryLock(testkit.Ctx(t), engine.Acked(1))),
		`engine: invalid argument: Config.DB (-1) must not be negative; Config.CommandConns (65) must be within 1 and 64`:                                          testkit.ErrOf(engine.New(testkit.Ctx(t), engine.Config{DB: -1, CommandConns: 65})),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}
