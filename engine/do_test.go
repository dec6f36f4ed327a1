package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/cputime"
)

func TestDoRunsUnderTheLockAndReturnsTheFunctionsError(t *testing.T) {
	t.Parallel()
	s := server(t)
	m := open(t, s.URL()).Mutex("x")
	why := errors.New("the job failed")
	err := m.Do(ctxT(t), func(ctx context.Context, h *Hold) error {
		if f := fields(t, s, "x"); f[h.Owner()] != "1" {
			t.Errorf("hash is %v", f)
		}
		if ctx.Err() != nil {
			t.Error("the context has ended")
		}
		return why
	})
	if err != why {
		t.Errorf("Do: %v, want the function's error as it is", err)
	}
	clean(t, s)
}

func TestDoReleasesWhenTheFunctionPanicsOrExits(t *testing.T) {
	t.Parallel()
	s := server(t)
	m := open(t, s.URL()).Mutex("x")
	ended := make(chan any, 1)
	for what, end := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
		go func() {
			defer func() { ended <- recover() }()
			_ = m.Do(context.Background(), func(context.Context, *Hold) error { end(); return nil })
			t.Error("Do returned")
		}()
		if p := receive(t, ended); (p == "boom") != (what == "panic") {
			t.Errorf("%s came out as %v", what, p)
		}
		if f := fields(t, s, "x"); len(f) != 0 {
			t.Errorf("after %s the lock is held: %v", what, f)
		}
	}
	clean(t, s)
}

func TestDoTellsThatTheLockWasLost(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		m := open(t, s.URL()).Mutex("x")
		why := errors.New("the job failed too")
		for _, result := range []error{nil, why} {
			err := m.Do(ctxT(t), func(ctx context.Context, _ *Hold) error {
				receive(t, ctx.Done())
				wantLost(t, "cause", context.Cause(ctx), LeaseEnded)
				return result
			}, Lease(150*time.Millisecond))
			wantLost(t, "Do", err, LeaseEnded)
			if result != nil && !errors.Is(err, why) {
				t.Errorf("the function's error is lost: %v", err)
			}
		}
		err := m.Do(ctxT(t), func(ctx context.Context, _ *Hold) error {
			<-ctx.Done()
			return fmt.Errorf("the job stopped: %w", context.Cause(ctx))
		}, Lease(150*time.Millisecond))
		wantLost(t, "Do of a function that says why it stopped", err, LeaseEnded)
		if strings.Count(err.Error(), "was lost") != 1 {
			t.Errorf("it stutters: %v", err)
		}
		err = m.Do(ctxT(t), func(context.Context, *Hold) error { s.Do("DEL", "x"); return nil })
		wantLost(t, "Do of a deleted lock", err, GoneOnServer)
		clean(t, s)
	})
}

func TestDoWhoseFunctionUnlocks(t *testing.T) {
	t.Parallel()
	s := server(t)
	m := open(t, s.URL()).Mutex("x")
	if err := m.Do(ctxT(t), func(ctx context.Context, h *Hold) error { return h.Unlock(ctx) }); err != nil {
		t.Error(err)
	}
	// A context that was made from the hold's own, and of a re-entry.
	if err := m.Do(ctxT(t), func(ctx context.Context, h *Hold) error {
		child, err := m.Lock(ctx)
		if err != nil {
			return err
		}
		inner, cancel := cputime.WithTimeout(child.Context(ctx), limit)
		defer cancel()
		return h.Unlock(inner)
	}); err != nil {
		t.Error(err)
	}
	if err := m.Do(ctxT(t), func(_ context.Context, h *Hold) error { h.UnlockAsync(); return nil }); err != nil {
		t.Error(err)
	}
	clean(t, s)
}

// The release does not depend on the context of the call.
func TestDoReleasesUnderAContextThatEnded(t *testing.T) {
	t.Parallel()
	s := server(t)
	m := open(t, s.URL()).Mutex("x")
	ctx, cancel := context.WithCancel(context.Background())
	if err := m.Do(ctx, func(context.Context, *Hold) error { cancel(); return nil }); err != nil {
		t.Error(err)
	}
	clean(t, s)
}

func TestTryDoRunsOnceAmongMany(t *testing.T) {
	t.Parallel()
	s := server(t)
	a, b := open(t, s.URL()).Mutex("job"), open(t, s.URL()).Mutex("job")
	ran, err := a.TryDo(ctxT(t), func(context.Context, *Hold) error {
		ran, err := b.TryDo(ctxT(t), func(context.Context, *Hold) error { t.Error("ran twice"); return nil })
		if ran || err != nil {
			t.Errorf("the second: %v, %v", ran, err)
		}
		return nil
	})
	if !ran || err != nil {
		t.Errorf("the first: %v, %v", ran, err)
	}
	why := errors.New("the job failed")
	if ran, err := b.TryDo(ctxT(t), func(context.Context, *Hold) error { return why }); !ran || !errors.Is(err, why) {
		t.Errorf("the next: %v, %v", ran, err)
	}
	clean(t, s)
}
