package testkit

import (
	"testing"

	"github.com/pawl-lock/pawl/engine"
)

// MustSetPermits gives a semaphore that does not exist n permits.
func MustSetPermits(t testing.TB, s engine.Semaphore, n int) {
	t.Helper()
	if set, err := s.TrySetPermits(Ctx(t), n); err != nil || !set {
		t.Fatal(set, err)
	}
}

// MustAcquire acquires n permits or fails the test.
func MustAcquire(t testing.TB, s engine.Semaphore, n int) *engine.Permits {
	t.Helper()
	p, err := s.Acquire(Ctx(t), n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// MustTake acquires n permits of a PermitSemaphore or fails the test.
func MustTake(t testing.TB, s engine.PermitSemaphore, n int, opts ...engine.Option) *engine.Hold {
	t.Helper()
	h, err := s.Acquire(Ctx(t), n, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}
