package cputime

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ownMeter returns a meter, and what holds it up: its timer cannot run meanwhile.
func ownMeter(t *testing.T) (m *meter, holdUp func(time.Duration)) {
	m = newMeter()
	t.Cleanup(func() { m.timer.Stop() })
	return m, func(d time.Duration) {
		m.mu.Lock()
		defer m.mu.Unlock()
		<-time.After(d)
	}
}

func TestMeter_ProcessHeldUp_IsCounted(t *testing.T) {
	t.Parallel()
	m, holdUp := ownMeter(t)
	start, before := m.look()
	w := m.watch()
	holdUp(200 * time.Millisecond)
	// At once, though the timer may not have run yet.
	now, held := m.look()
	if held -= before; held < 200*time.Millisecond-period-noise || held > now.Sub(start) {
		t.Errorf("held up for %v of %v", held, now.Sub(start))
	}
	if worst := m.unwatch(w); worst < 200*time.Millisecond-period-noise {
		t.Errorf("the worst delay is %v", worst)
	}
	if len(m.mu.watchers) != 0 {
		t.Error("a watcher stays")
	}
}

func TestElapsed_Sleeps_AtMostWhatAClockSays(t *testing.T) {
	t.Parallel()
	start, mark := time.Now(), Now()
	for range 20 {
		time.Sleep(5 * time.Millisecond) // a time to measure
		if e, d := mark.Elapsed(), time.Since(start); e > d || e < 0 {
			t.Errorf("%v of %v", e, d)
		}
	}
}

func TestWithTimeout_TimeoutOrCancel_Ends(t *testing.T) {
	t.Parallel()
	start := time.Now()
	ctx, cancel := WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		t.Errorf("cause: %v", context.Cause(ctx))
	}
	if d := time.Since(start); d < 30*time.Millisecond {
		t.Errorf("ended after %v", d)
	}
	ctx, cancel = WithTimeout(context.Background(), time.Hour)
	cancel()
	if !errors.Is(ctx.Err(), context.Canceled) {
		t.Errorf("cancelled: %v", ctx.Err())
	}
}

// outcome runs a scenario as a test that is held up or not would.
func outcome(t *testing.T, holdsUp bool, scenario func(t testing.TB, n int)) (recorded *attempt, runs int) {
	m, holdUp := ownMeter(t)
	recorded = &attempt{TB: t}
	recorded.run(func(t testing.TB) {
		m.steady(t, time.Hour, func(testing.TB) {}) // one that passes changes nothing
		m.steady(t, tolerance(holdsUp), func(t testing.TB) {
			runs++
			if holdsUp {
				holdUp(30 * time.Millisecond)
			}
			scenario(t, runs)
		})
	})
	return recorded, runs
}

func tolerance(holdsUp bool) time.Duration {
	if holdsUp {
		return 15 * time.Millisecond
	}
	return time.Hour
}

func TestSteady_HeldUp_IsTriedAgain(t *testing.T) {
	t.Parallel()
	fails := func(t testing.TB, n int) { t.Fatalf("wrong %d", n) }
	for name, c := range map[string]struct {
		holdsUp  bool
		scenario func(testing.TB, int)
		runs     int
		failed   bool
		says     string
	}{
		"passes":        {false, func(t testing.TB, _ int) { t.Log("fine") }, 1, false, "fine"},
		"fails at once": {false, fails, 1, true, "wrong 1"},
		"held up, then passes": {true, func(t testing.TB, n int) {
			if n < 3 {
				t.Errorf("late")
			}
		}, 3, false, "proves nothing"},
		"held up, fails for ever": {true, fails, attempts, true, "wrong 12"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, runs := outcome(t, c.holdsUp, c.scenario)
			if runs != c.runs || a.Failed() != c.failed || !strings.Contains(a.text(), c.says) {
				t.Errorf("%d runs, failed %t, said:\n%s", runs, a.Failed(), a.text())
			}
			if c.says != "" && !strings.Contains(a.text(), "pace_test.go:") && c.says != "proves nothing" {
				t.Errorf("no line of the test: %s", a.text())
			}
		})
	}
}

func TestSteady_Attempts_CleanUp(t *testing.T) {
	t.Parallel()
	var order []string
	note := func(what string) func() { return func() { order = append(order, what) } }
	_, runs := outcome(t, true, func(t testing.TB, n int) {
		if len(order) != 3*(n-1) {
			t.Errorf("attempt %d begins after %v", n, order)
		}
		ctx := t.Context()
		t.Cleanup(note("first"))
		t.Cleanup(func() { order = append(order, "second"); t.FailNow() })
		t.Cleanup(func() {
			if ctx.Err() != nil {
				order = append(order, "third")
			}
		})
		if n < 3 {
			t.FailNow()
		}
	})
	if runs != attempts || strings.Join(order[:3], " ") != "third second first" {
		t.Errorf("%d runs, cleaned up %v", runs, order)
	}
}

func TestSteady_AttemptSkips_SkipsTheTest(t *testing.T) {
	t.Parallel()
	a, runs := outcome(t, false, func(t testing.TB, _ int) { t.Skip("no such machine") })
	if !a.Skipped() || runs != 1 || !strings.Contains(a.text(), "no such machine") {
		t.Errorf("%d runs, skipped %t: %s", runs, a.Skipped(), a.text())
	}
}
