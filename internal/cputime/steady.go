package cputime

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// attempts bounds how often a scenario is tried on a machine that is never steady.
const attempts = 12

// Steady runs a scenario that holds only where this process runs when it has to: one
// with a lease that must be renewed in time, say. If it fails, and the process was held
// up meanwhile for longer than tolerance in one piece, that proves nothing, and it is
// run again, from the start, with a TB of its own; a few times at most. If it fails and
// the process was not held up, the test fails at once.
//
// The scenario makes all that it needs itself. Its Cleanups run at its end.
func Steady(t *testing.T, tolerance time.Duration, scenario func(t testing.TB)) {
	t.Helper()
	process.steady(t, tolerance, scenario)
}

func (m *meter) steady(t testing.TB, tolerance time.Duration, scenario func(t testing.TB)) {
	t.Helper()
	for n := 1; ; n++ {
		a := &attempt{TB: t}
		w := m.watch()
		a.run(scenario)
		worst := m.unwatch(w)
		switch {
		case a.skipped:
			t.Skip(a.text())
		case !a.failed:
			if text := a.text(); text != "" {
				t.Log(text)
			}
			return
		case worst <= tolerance:
			t.Fatalf("%s\n(nothing held this process up for longer than %v meanwhile)", a.text(), worst.Round(time.Millisecond))
		case n == attempts:
			t.Fatalf("%s\n(attempt %d; this machine holds its processes up too long for this test, by %v the last time)", a.text(), n, worst.Round(time.Millisecond))
		}
		t.Logf("attempt %d proves nothing, this process was held up for %v:\n%s", n, worst.Round(time.Millisecond), a.text())
	}
}

// attempt is a test inside a test. Its methods may be called from any goroutine, but
// for those that end it.
type attempt struct {
	testing.TB
	ctx context.Context

	mu       sync.Mutex
	failed   bool
	skipped  bool
	said     []string
	cleanups []func()
}

// run returns when the scenario and its cleanups have ended.
func (a *attempt) run(scenario func(testing.TB)) {
	ctx, cancel := context.WithCancel(a.TB.Context())
	a.ctx = ctx
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer a.clean()
		defer cancel()
		scenario(a)
	}()
	<-done
}

// clean runs the cleanups, the last one first, also after one that ends its goroutine.
func (a *attempt) clean() {
	a.mu.Lock()
	n := len(a.cleanups)
	if n == 0 {
		a.mu.Unlock()
		return
	}
	f := a.cleanups[n-1]
	a.cleanups = a.cleanups[:n-1]
	a.mu.Unlock()
	defer a.clean()
	f()
}

func (a *attempt) text() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.said, "\n")
}

// say notes a text with the line of the test that it comes from.
func (a *attempt) say(text string) {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	where := ""
	for frame, more := frames.Next(); more; frame, more = frames.Next() {
		if strings.HasSuffix(frame.File, "_test.go") {
			where += fmt.Sprintf("%s:%d: ", filepath.Base(frame.File), frame.Line)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.said = append(a.said, where+strings.TrimSuffix(text, "\n"))
}

func (a *attempt) Context() context.Context { return a.ctx }

func (a *attempt) Cleanup(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cleanups = append(a.cleanups, f)
}

func (a *attempt) Fail() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = true
}

func (a *attempt) Failed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

func (a *attempt) Skipped() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.skipped
}

func (a *attempt) FailNow() {
	a.Fail()
	runtime.Goexit()
}

func (a *attempt) SkipNow() {
	a.mu.Lock()
	a.skipped = true
	a.mu.Unlock()
	runtime.Goexit()
}

func (a *attempt) Log(args ...any)                 { a.say(fmt.Sprintln(args...)) }
func (a *attempt) Logf(format string, args ...any) { a.say(fmt.Sprintf(format, args...)) }

func (a *attempt) Error(args ...any) {
	a.say(fmt.Sprintln(args...))
	a.Fail()
}

func (a *attempt) Errorf(format string, args ...any) {
	a.say(fmt.Sprintf(format, args...))
	a.Fail()
}

func (a *attempt) Fatal(args ...any) {
	a.say(fmt.Sprintln(args...))
	a.FailNow()
}

func (a *attempt) Fatalf(format string, args ...any) {
	a.say(fmt.Sprintf(format, args...))
	a.FailNow()
}

func (a *attempt) Skip(args ...any) {
	a.say(fmt.Sprintln(args...))
	a.SkipNow()
}

func (a *attempt) Skipf(format string, args ...any) {
	a.say(fmt.Sprintf(format, args...))
	a.SkipNow()
}
