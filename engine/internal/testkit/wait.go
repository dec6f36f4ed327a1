package testkit

import (
	"context"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// Limit is how long a test waits for something that must happen: of the time that this
// process can use, as everything here that bounds how long something may take.
const Limit = 20 * time.Second

// Patience is for what knows real time only, like a connection's deadline.
const Patience = 10 * time.Minute

// Steady is cputime.Steady, for tests whose leases and timeouts must suffice: a process that
// does not run for longer than this loses locks, and rightly so.
func Steady(t *testing.T, scenario func(t testing.TB)) {
	t.Helper()
	cputime.Steady(t, 50*time.Millisecond, scenario)
}

// Within returns a context that ends the test's patience.
func Within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := cputime.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// Ctx is the context of a call that must return within Limit.
func Ctx(t testing.TB) context.Context { return Within(t, Limit) }

// Eventually waits until a condition holds.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	pause := time.Millisecond
	for start := cputime.Now(); !ok(); {
		if start.Elapsed() > Limit {
			t.Fatalf("not within %v: %s", Limit, what)
		}
		time.Sleep(pause) // a poll, not a hope: the limit above decides
		pause = min(pause*5/4, 20*time.Millisecond)
	}
}

// Receive waits for a channel, but not for ever.
func Receive[T any](t testing.TB, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-Ctx(t).Done():
		t.Fatalf("nothing within %v", Limit)
	}
	return v
}

// Background runs f on a goroutine of its own.
func Background(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// Pause waits for d, and reports whether it is not over meanwhile.
func Pause(over <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-over:
		return false
	}
}

// Stay is what one does who is inside: it takes as long as a few commands of the server. So whoever
// should be kept out has the time to come in, and is seen.
func Stay(s *redistest.Server) {
	for range 3 {
		_, _ = s.Process.Do("PING") // a test that cuts connections may cut this one
	}
}

// GoroutinesCreated is how many there have been in this process.
func GoroutinesCreated() uint64 {
	sample := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// Stack is that of the goroutine that asks.
func Stack() string {
	b := make([]byte, 64<<10)
	return string(b[:runtime.Stack(b, false)])
}
