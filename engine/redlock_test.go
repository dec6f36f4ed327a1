package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// What one server said is in the text of the error of a RedLock, but the error is only what is
// true of the whole.
func TestRedLock_Error_IsWhatIsTrueOfTheWhole(t *testing.T) {
	t.Parallel()
	is := func(t testing.TB, err error, text string, yes ...error) {
		t.Helper()
		for _, want := range yes {
			if !errors.Is(err, want) {
				t.Errorf("not %q: %v", want, err)
			}
		}
		for name, other := range sentinels {
			if errors.Is(err, other) && !errors.Is(errors.Join(yes...), other) {
				t.Errorf("it is %s: %v", name, err)
			}
		}
		if !hasText(err, text) {
			t.Errorf("without %q: %v", text, err)
		}
	}
	const gone = "the server does not have it any more"
	t.Run("lost, and refused for good at another", func(t *testing.T) {
		t.Parallel()
		steady(t, func(t testing.TB) {
			tr := newTroubleOf(t, "RedLock")
			if err := tr.s.Redis().Set("x", "of another library"); err != nil {
				t.Fatal(err)
			}
			h := tr.lock(Lease(time.Second))
			receive(t, h.Done())
			is(t, h.Err(), "WRONGTYPE", ErrLost)
			left, listed := 0, strings.Count(h.Err().Error(), "127.0.0.1:")
			if _, err := fmt.Sscanf(h.Err().Error(), `engine: lock "x" was lost: %d of 3`, &left); err != nil || left+listed != 3 {
				t.Errorf("%d are left, and %d are listed: %v", left, listed, h.Err())
			}
		})
	})
	t.Run("gone at one, and not released at another", func(t *testing.T) {
		t.Parallel()
		steady(t, func(t testing.TB) {
			tr := newTroubleOf(t, "RedLock")
			h := tr.lock()
			eventually(t, "all have it", func() bool { return len(h.(*Hold).Servers()) == 3 })
			tr.s.Redis().Del("x")
			tr.places[1].net.Pause(faultproxy.All)
			defer tr.places[1].net.Resume()
			is(t, h.Unlock(tr.soon()), gone, ErrOutcomeUnknown)
			is(t, h.Err(), "", ErrReleased)
		})
	})
	t.Run("gone at one, and not extended at another", func(t *testing.T) {
		t.Parallel()
		steady(t, func(t testing.TB) {
			tr := newTroubleOf(t, "RedLock")
			h := tr.lock(Lease(time.Minute))
			eventually(t, "all have it", func() bool { return len(h.(*Hold).Servers()) == 3 })
			tr.s.Redis().Del("x")
			tr.places[1].net.Pause(faultproxy.All)
			defer tr.places[1].net.Resume()
			is(t, h.Extend(tr.soon(), time.Hour), gone, ErrOutcomeUnknown)
			if err := h.Err(); err != nil {
				t.Errorf("lost: %v", err)
			}
		})
	})
}

// It names the lock, also if nothing was asked.
func TestRedLock_Error_NamesIt(t *testing.T) {
	t.Parallel()
	tr := newTroubleOf(t, "RedLock")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for what, err := range map[string]error{
		"an ended context": errOf(tr.l.lock(gone)),
		"no context":       errOf(tr.l.lock(tr.none)),
		"one server twice": errOf(RedLock(tr.m, tr.m).Lock(tr.ctx)),
	} {
		if !errors.Is(err, ErrNotAcquired) || !hasText(err, `lock "x" not acquired`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := RedLock().Lock(tr.ctx); !errors.Is(err, ErrInvalid) {
		t.Errorf("no locks: %v", err)
	}
}

// One that refuses, and answers first, does not keep TryLock from hearing that a majority of the
// servers is held by somebody else. A caller that skips its job on ErrHeld would take that for a fault.
func TestRedLock_TryLockHeld_SaysSo(t *testing.T) {
	t.Parallel()
	tr := newTroubleOf(t, "RedLock")
	for _, p := range tr.places[1:] {
		mustLock(t, open(t, p.s.URL()).Mutex("x"))
		p.net.Delay(faultproxy.All, 20*time.Millisecond, 20*time.Millisecond)
	}
	late := tr.places[2].net
	late.Delay(faultproxy.All, 60*time.Millisecond, 60*time.Millisecond)
	for what, refuse := range map[string]func(){
		"another type": func() { tr.s.Redis().SetError(""); _ = tr.s.Redis().Set("x", "of another library") },
		"full":         func() { tr.s.Redis().Del("x"); tr.s.Redis().SetError("OOM command not allowed") },
	} {
		refuse()
		ran, err := RedLock(tr.places[0].m, tr.places[1].m, tr.places[2].m).TryDo(tr.ctx, nil)
		if ran || err != nil {
			t.Errorf("%s: %t, %v", what, ran, err)
		}
	}
}
