package testkit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// MustLock locks or fails the test.
func MustLock(t testing.TB, m engine.Mutex, opts ...engine.Option) *engine.Hold {
	t.Helper()
	h, err := m.Lock(Ctx(t), opts...)
	if err != nil {
		t.Fatalf("Lock(%q): %v", m.Name(), err)
	}
	return h
}

// MustReenter re-enters a hold or fails the test.
func MustReenter(t testing.TB, m engine.Mutex, h *engine.Hold, opts ...engine.Option) *engine.Hold {
	t.Helper()
	child, err := m.Lock(h.Context(Ctx(t)), opts...)
	if err != nil {
		t.Fatalf("re-entry of %s: %v", m.Name(), err)
	}
	if child.Owner() != h.Owner() {
		t.Fatalf("%s was taken afresh, not re-entered", m.Name())
	}
	return child
}

// MustUnlock unlocks or fails the test.
func MustUnlock(t testing.TB, h *engine.Hold) {
	t.Helper()
	if err := h.Unlock(Ctx(t)); err != nil {
		t.Fatalf("Unlock(%q): %v", h.Name(), err)
	}
}

// MustReenterWith re-enters the hold of a context or fails the test.
func MustReenterWith(t testing.TB, ctx context.Context, m engine.Mutex) *engine.Hold {
	t.Helper()
	h, err := m.Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// MustLockMany locks all of them or fails the test.
func MustLockMany(t testing.TB, e *engine.Engine, names []string, opts ...engine.Option) *engine.Hold {
	t.Helper()
	h, err := e.LockMany(Ctx(t), names, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Names are n names.
func Names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint("n", i)
	}
	return all
}

// WantLost fails the test unless err says that a hold was lost, and why.
func WantLost(t testing.TB, what string, err error, reason engine.LostReason) {
	t.Helper()
	var lost *engine.LostError
	if !errors.As(err, &lost) || !errors.Is(err, engine.ErrLost) || lost.Reason != reason {
		t.Errorf("%s: %v, want a LostError: %v", what, err, reason)
	}
}

// WantServedAfterRemoval expects the waiter to come in, and the hold to know.
func WantServedAfterRemoval(t testing.TB, h *engine.Hold, waiter *engine.Future[*engine.Hold]) {
	t.Helper()
	next, err := waiter.Await(Ctx(t))
	if err != nil {
		t.Fatalf("the lock is free, and the waiter was not served: %v; the hold: %v", err, h.Err())
	}
	WantLost(t, "the hold that was removed", h.Err(), engine.RemovedOnServer)
	MustUnlock(t, next)
}

// ErrOf is the error of a call.
func ErrOf[T any](_ T, err error) error { return err }

// HasText reports whether an error has this text in it.
func HasText(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }

// WantInvalid checks that a call was refused for its arguments, with a text that
// says which, and that the server was not bothered.
func WantInvalid(t *testing.T, errs map[string]error, text string) {
	t.Helper()
	for what, err := range errs {
		if !errors.Is(err, engine.ErrInvalid) || !HasText(err, text) {
			t.Errorf("%s: %v, want ErrInvalid with %q", what, err, text)
		}
		if locks := what != "State" && what != "ForceUnlock"; locks && !errors.Is(err, engine.ErrNotAcquired) {
			t.Errorf("%s: %v, want ErrNotAcquired too", what, err)
		}
	}
}

// RenewedAfter waits until a hold that was valid until then has been renewed.
func RenewedAfter(t testing.TB, h *engine.Hold, until time.Time) {
	t.Helper()
	Eventually(t, "it is renewed", func() bool {
		if err := h.Err(); err != nil {
			t.Fatalf("the hold ended: %v", err)
		}
		return h.ValidUntil().After(until.Add(100 * time.Millisecond))
	})
}
