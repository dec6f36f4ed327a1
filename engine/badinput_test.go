package engine

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// everyLock calls every form of acquiring and returns the errors by name.
func everyLock(ctx context.Context, m Mutex, opts ...Option) map[string]error {
	never := func(context.Context, *Hold) error { panic("ran without the lock") }
	errs := map[string]error{
		"Lock":         errOf(m.Lock(ctx, opts...)),
		"TryLock":      errOf(m.TryLock(ctx, opts...)),
		"LockAsync":    errOf(m.LockAsync(ctx, opts...).Await(ctx)),
		"TryLockAsync": errOf(m.TryLockAsync(ctx, opts...).Await(ctx)),
		"Do":           m.Do(ctx, never, opts...),
		"TryDo":        errOf(m.TryDo(ctx, never, opts...)),
	}
	return errs
}

// wantInvalid checks that a call was refused for its arguments, with a text that
// says which, and that the server was not bothered.
func wantInvalid(t *testing.T, errs map[string]error, text string) {
	t.Helper()
	for what, err := range errs {
		if !errors.Is(err, ErrInvalid) || !hasText(err, text) {
			t.Errorf("%s: %v, want ErrInvalid with %q", what, err, text)
		}
		if locks := what != "State" && what != "ForceUnlock"; locks && !errors.Is(err, ErrNotAcquired) {
			t.Errorf("%s: %v, want ErrNotAcquired too", what, err)
		}
	}
}

func TestNamesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	for name, text := range map[string]string{
		"":                         "must not be empty",
		strings.Repeat("x", 1<<20): "must be at most 65536 bytes, not 1048576",
		"a\x00b":                   "zero byte",
	} {
		m := e.Mutex(name)
		errs := everyLock(ctxT(t), m)
		_, errs["State"] = m.State(ctxT(t))
		_, errs["ForceUnlock"] = m.ForceUnlock(ctxT(t))
		wantInvalid(t, errs, text)
		for what, err := range errs {
			if len(err.Error()) > 1000 {
				t.Errorf("%s: the error is %d bytes long", what, len(err.Error()))
			}
		}
	}
	longest := e.Mutex(strings.Repeat("y", 64<<10))
	h := mustLock(t, longest)
	_, err := longest.TryLock(ctxT(t))
	if err == nil || len(err.Error()) > 1000 {
		t.Errorf("TryLock: an error of %d bytes", len(err.Error()))
	}
	mustUnlock(t, h)
	mapped := open(t, s.URL(), func(c *Config) { c.NameMapper = func(string) string { return "" } })
	wantInvalid(t, everyLock(ctxT(t), mapped.Mutex("x")), "must not be empty")
	clean(t, s)
}

func TestZeroMutex(t *testing.T) {
	t.Parallel()
	for _, m := range []Mutex{{}} {
		errs := everyLock(ctxT(t), m)
		_, errs["State"] = m.State(ctxT(t))
		_, errs["ForceUnlock"] = m.ForceUnlock(ctxT(t))
		wantInvalid(t, errs, "zero Mutex")
		m.LockAsync(ctxT(t)).Abandon()
		if m.Name() != "" {
			t.Errorf("Name: %q", m.Name())
		}
	}
}

func TestOptionsThatCannotBe(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	m := e.Mutex("x")
	ms := time.Millisecond
	for _, c := range []struct {
		opts []Option
		text string
	}{
		{[]Option{Lease(0)}, "Lease (0s) must be at least 1ms"},
		{[]Option{Lease(-time.Second)}, "Lease (-1s) must be at least 1ms"},
		{[]Option{Lease(999 * time.Microsecond)}, "Lease (999µs) must be at least 1ms"},
		{[]Option{Lease(4 * ms)}, "Lease (4ms) must be longer than the safety margin (5ms)"},
		{[]Option{Lease(1 << 62)}, "Lease (1281023h53m38.427387904s) must be at most"},
		{[]Option{Lease(time.Second), MaxHold(time.Second)}, "Lease and MaxHold exclude each other"},
		{[]Option{MaxHold(0)}, "MaxHold (0s) must be"},
		{[]Option{MaxHold(-1)}, "MaxHold (-1ns) must be"},
		{[]Option{MinHold(0)}, "MinHold (0s) must be positive"},
		{[]Option{Lease(time.Second), MinHold(2 * time.Second)}, "MinHold (2s) must not exceed Lease (1s)"},
		{[]Option{MaxHold(10 * time.Second), MinHold(20 * time.Second)}, "MinHold (20s) must not exceed MaxHold (10s)"},
		{[]Option{Lease(time.Second), nil}, "a nil Option"},
		{[]Option{Backoff(ms, ms)}, "Backoff(1ms, 1ms) is for a SpinMutex"},
	} {
		wantInvalid(t, everyLock(ctxT(t), m, c.opts...), c.text)
	}
	for _, b := range [][2]time.Duration{{0, ms}, {ms - 1, ms}, {2 * ms, ms}, {ms, time.Second + 1}, {-ms, -ms}} {
		wantInvalid(t, everyLock(ctxT(t), e.SpinMutex("x"), Backoff(b[0], b[1])), "must go up, and be within 1ms and 1s")
	}
	for _, d := range []time.Duration{0, -time.Second} {
		wantInvalid(t, map[string]error{
			"Lock":      errOf(m.Lock(ctxT(t), Wait(d))),
			"LockAsync": errOf(m.LockAsync(ctxT(t), Wait(d)).Result()),
		}, "Wait ("+d.String()+") must be positive")
	}
	wantInvalid(t, map[string]error{
		"TryLock":      errOf(m.TryLock(ctxT(t), Wait(time.Second))),
		"TryLockAsync": errOf(m.TryLockAsync(ctxT(t), Wait(time.Second)).Result()),
	}, "Wait does not go with TryLock")
	if _, err := m.ForceUnlock(ctxT(t), nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("ForceUnlock with a nil option: %v", err)
	}

	h := mustLock(t, m, Lease(10*time.Second))
	for d, text := range map[time.Duration]string{0: "between 1ms", -time.Second: "between 1ms", 1 << 62: "between 1ms", 3 * ms: "safety margin"} {
		if err := h.Extend(ctxT(t), d); !errors.Is(err, ErrInvalid) || !hasText(err, text) {
			t.Errorf("Extend(%v): %v", d, err)
		}
	}
	if err := h.Err(); err != nil {
		t.Errorf("bad input cost the hold: %v", err)
	}
	mustUnlock(t, h)
	if n := e.Stats().Commands; n > 40 {
		t.Errorf("%d commands were sent for requests that cannot be", n)
	}
	clean(t, s)
}

func TestKeyOfAnotherType(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	s.Do("SET", "x", "a lock of another library")
	m := e.Mutex("x")
	errs := everyLock(ctxT(t), m)
	for what, err := range errs {
		if !errors.Is(err, ErrWrongType) || !errors.Is(err, ErrNotAcquired) {
			t.Errorf("%s: %v, want ErrWrongType and ErrNotAcquired", what, err)
		}
	}
	if _, err := m.State(ctxT(t)); !errors.Is(err, ErrWrongType) {
		t.Errorf("State: %v", err)
	}
	if _, err := m.ForceUnlock(ctxT(t)); !errors.Is(err, ErrWrongType) {
		t.Errorf("ForceUnlock: %v", err)
	}
	if v := s.Do("GET", "x"); v != "a lock of another library" {
		t.Errorf("the key is %v now", v)
	}
	s.Do("DEL", "x")
	mustUnlock(t, mustLock(t, m))
	// A hash that is no lock: it is held by somebody, as far as one can see.
	s.Do("HSET", "h", "name", "Ada")
	if _, err := e.Mutex("h").TryLock(ctxT(t)); !errors.Is(err, ErrHeld) {
		t.Errorf("TryLock of a hash: %v", err)
	}
	if _, err := e.Mutex("h").State(ctxT(t)); !errors.Is(err, ErrWrongType) {
		t.Errorf("State of a hash: %v", err)
	}
}

func TestUnlockTwice(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	h := mustLock(t, e.Mutex("x"))
	mustUnlock(t, h)
	before := e.Stats().Commands
	if err := h.Unlock(ctxT(t)); !errors.Is(err, ErrNotHeld) {
		t.Errorf("Unlock: %v", err)
	}
	if _, err := h.UnlockAsync().Result(); !errors.Is(err, ErrNotHeld) {
		t.Errorf("UnlockAsync: %v", err)
	}
	if err := h.Extend(ctxT(t), time.Minute); !errors.Is(err, ErrNotHeld) && !errors.Is(err, ErrInvalid) {
		t.Errorf("Extend: %v", err)
	}
	if n := e.Stats().Commands - before; n != 0 {
		t.Errorf("%d commands were sent", n)
	}
	// The second Unlock cannot touch the owner that came in meanwhile.
	other := mustLock(t, open(t, s.URL()).Mutex("x"))
	_ = h.Unlock(ctxT(t))
	if f := fields(t, s, "x"); f[other.Owner()] != "1" {
		t.Errorf("hash is %v", f)
	}
	mustUnlock(t, other)
	clean(t, s)
}

func TestUseAfterClose(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	m := e.Mutex("x")
	h, fixed := mustLock(t, m), mustLock(t, e.Mutex("y"), Lease(time.Minute))
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for what, err := range everyLock(ctxT(t), m) {
		if !errors.Is(err, ErrClosed) || !errors.Is(err, ErrNotAcquired) {
			t.Errorf("%s: %v, want ErrClosed and ErrNotAcquired", what, err)
		}
	}
	for what, err := range map[string]error{
		"State": errOf(m.State(ctxT(t))), "ForceUnlock": errOf(m.ForceUnlock(ctxT(t))), "Ping": e.Ping(ctxT(t)),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", what, err)
		}
	}
	wantLost(t, "Unlock", h.Unlock(ctxT(t)), EngineClosed)
	wantLost(t, "UnlockAsync", errOf(h.UnlockAsync().Result()), EngineClosed)
	wantLost(t, "Extend", fixed.Extend(ctxT(t), time.Minute), EngineClosed)
	wantLost(t, "Err", h.Err(), EngineClosed)
	if err := e.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if err := e.Shutdown(ctxT(t)); err != nil {
		t.Errorf("Shutdown after Close: %v", err)
	}
	_, _ = e.Stats(), e.ID()
	clean(t, s)
}

func TestWrongPasswordFailsAtOnceAndIsNotTold(t *testing.T) {
	t.Parallel()
	s := server(t, redistest.Password("open sesame"))
	for what, url := range map[string]string{
		"wrong": "redis://:hunter2hunter2@" + s.Addr(), "none": "redis://" + s.Addr(),
		"user": "redis://nobody:hunter2hunter2@" + s.Addr(),
	} {
		start := cputime.Now()
		_, err := Open(ctxT(t), url)
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", what, err)
		}
		if hasText(err, "hunter2") {
			t.Errorf("%s: the password is told: %v", what, err)
		}
		if d := start.Elapsed(); d > 5*time.Second {
			t.Errorf("%s: told after %v", what, d)
		}
	}
}

// What is not Redis at all, or says nothing, or hangs up.
func TestServerThatIsNone(t *testing.T) {
	t.Parallel()
	refusing, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := refusing.Addr().String()
	refusing.Close()
	hello := fakenode.New(t)
	hello.On(fakenode.Connect, fakenode.Raw("220 smtp.example.org ESMTP\r\n"))
	web := fakenode.New(t)
	web.On(fakenode.Any, fakenode.Raw("HTTP/1.1 400 Bad Request\r\n\r\n"))
	binary := fakenode.New(t)
	binary.On(fakenode.Any, fakenode.Raw("\x15\x03\x01\x00\x02\x02\x16"))
	closes := fakenode.New(t)
	closes.On(fakenode.Connect, fakenode.Close())
	hangsUp := fakenode.New(t)
	hangsUp.On(fakenode.Any, fakenode.Reset())
	silent := fakenode.New(t)
	silent.On(fakenode.Any, fakenode.Drop())
	for what, addr := range map[string]string{
		"nobody listens": nobody, "greets": hello.Addr(), "HTTP": web.Addr(), "binary": binary.Addr(),
		"closes": closes.Addr(), "resets": hangsUp.Addr(), "silent": silent.Addr(),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			e, err := Open(within(t, 500*time.Millisecond), "redis://"+addr+"?dial_timeout=200ms")
			if !errors.Is(err, ErrUnavailable) {
				t.Errorf("Open: %v, %v, want ErrUnavailable", e, err)
			}
			if err != nil && len(err.Error()) > 1000 {
				t.Errorf("the error is long: %v", err)
			}
		})
	}
}

// The server lets us in and then answers scripts with what no script says.
func TestScriptsAnsweredWithGarbage(t *testing.T) {
	t.Parallel()
	for what, reply := range map[string]fakenode.Action{
		"a string": fakenode.Bulk("granted, I think"), "a list": fakenode.Raw("*2\r\n:-2\r\n:-2\r\n"),
		"nil": fakenode.Raw("$-1\r\n"), "no RESP": fakenode.Raw("granted\r\n"), "closed": fakenode.Close(),
		"half": fakenode.HalfThenReset(":-2\r\n"), "an unknown error": fakenode.Error("WAT is this"),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			n := fakenode.New(t)
			n.On(fakenode.Is("EVALSHA"), reply)
			e := open(t, "redis://"+n.Addr()+"?close_timeout=500ms&command_timeout=500ms")
			_, err := e.Mutex("x").TryLock(ctxT(t))
			if !errors.Is(err, ErrNotAcquired) || errors.Is(err, ErrHeld) {
				t.Errorf("TryLock: %v", err)
			}
			if _, err := e.Mutex("y").State(within(t, time.Second)); err == nil {
				t.Error("State made sense of it")
			}
			if _, err := e.Mutex("y").ForceUnlock(within(t, time.Second)); err == nil {
				t.Error("ForceUnlock made sense of it")
			}
			if n := len(n.Commands(fakenode.Is("EVALSHA"))); n > 500 {
				t.Errorf("the server was asked %d times", n)
			}
		})
	}
}
