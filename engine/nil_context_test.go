package engine

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestANilContextIsInvalidAndLeavesNothing(t *testing.T) {
	t.Parallel()
	s := server(t)
	var none context.Context
	for range 3 {
		for what, err := range map[string]error{
			"Open": errOf(Open(none, s.URL())), "New": errOf(New(none, Config{Addrs: []string{s.Addr()}})),
			"New, lazy": errOf(New(none, Config{Addrs: []string{s.Addr()}, Lazy: true})),
		} {
			if !errors.Is(err, ErrInvalid) || !hasText(err, "the context must not be nil") {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	// That nothing runs on is seen by TestMain, which looks for goroutines.

	e := open(t, s.URL())
	m := e.Mutex("x")
	fixed := mustLock(t, e.Mutex("fixed"), Lease(time.Minute))
	waiting := e.Mutex("fixed").LockAsync(ctxT(t))
	errs := everyLock(none, m)
	errs["LockAsync"] = errOf(m.LockAsync(none).Result())
	errs["TryLockAsync"] = errOf(m.TryLockAsync(none).Result())
	errs["State"] = errOf(m.State(none))
	errs["ForceUnlock"] = errOf(e.Mutex("fixed").ForceUnlock(none))
	errs["Ping"] = e.Ping(none)
	errs["Extend"] = fixed.Extend(none, time.Hour)
	errs["Await"] = errOf(waiting.Await(none))
	errs["Context"] = context.Cause(fixed.Context(none))
	errs["Detach"] = context.Cause(Detach(none))
	errs["Lock under the Context"] = errOf(m.Lock(fixed.Context(none)))
	errs["Shutdown"] = e.Shutdown(none)
	for what, err := range errs {
		if !errors.Is(err, ErrInvalid) || !hasText(err, "the context must not be nil") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := errs["Await"]; !errors.Is(err, ErrPending) {
		t.Errorf("Await: %v", err)
	}
	if err := fixed.Err(); err != nil {
		t.Errorf("it was lost: %v", err)
	}
	// Unlock still gives the lock back, and AwaitAll and AwaitAny let go of what
	// they were given.
	if err := fixed.Unlock(none); !errors.Is(err, ErrInvalid) || !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("Unlock: %v", err)
	}
	h, err := waiting.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	if h, err := waiting.Await(none); err != nil || h == nil {
		t.Errorf("Await of what is complete: %v, %v", h, err)
	}
	mustUnlock(t, h)
	if _, err := AwaitAll(none, m.LockAsync(ctxT(t))); !errors.Is(err, ErrInvalid) {
		t.Errorf("AwaitAll: %v", err)
	}
	if _, _, err := AwaitAny(none, m.LockAsync(ctxT(t)), m.LockAsync(ctxT(t))); !errors.Is(err, ErrInvalid) {
		t.Errorf("AwaitAny: %v", err)
	}
	eventually(t, "nothing is held or waited for", func() bool { st := e.Stats(); return st.Held+st.Waiting == 0 })
	clean(t, s, e)
}
