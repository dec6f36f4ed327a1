package bench

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

func TestFuturesAndHoldsAreWeighed(t *testing.T) {
	// Not parallel: all of the process is on the scales.
	for _, scenario := range []string{Waiters, Held} {
		cfg := quick(scenario)
		cfg.Count, cfg.Names = 5000, 5000
		if r := mustRun(t, cfg); r.HeapBytes < 100 || r.HeapBytes > 5000 || r.GoroutinesPeak > 20 {
			t.Errorf("%s: %d bytes each, %d goroutines", scenario, r.HeapBytes, r.GoroutinesPeak)
		}
	}
}

// With a closed engine no hold is made, so nothing may be won or lost on the scales.
func TestHoldsAreWeighedWithTheListOfNamesOnBothSides(t *testing.T) {
	// Not parallel: all of the process is on the scales.
	s := openServer(t, "")
	cfg := quick(Held)
	cfg.Count = 100_000
	ec, err := cfg.engine(s)
	if err != nil {
		t.Fatal(err)
	}
	e, err := startEngine(t.Context(), s, cfg, ec)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.eng.Close(); err != nil {
		t.Fatal(err)
	}
	h := &heldRun{engineRun: e}
	if err := h.run(); err != nil || e.result.HeapBytes < -4 || e.result.HeapBytes > 4 {
		t.Errorf("%d bytes for each of no holds, %v", e.result.HeapBytes, err)
	}
}

func TestWaitersAreAllServed(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, on func(Config) Config) {
		for _, names := range []int{1, 7, 500} {
			cfg := on(quick(Waiters))
			cfg.Names = names
			r := mustRun(t, cfg)
			if r.Served != 500 || r.Cancelled != 0 || r.Pairs != 500 || r.Names != names || r.Count != 500 || r.Finish != Serve {
				t.Errorf("%d names: %+v", names, r)
			}
			if r.IdleS < 0.1 || r.LatencyUs.Max <= 0 || r.DurationS <= 0 {
				t.Errorf("%d names: %+v", names, r)
			}
		}
	})
}

func TestWaitersAreAllCancelledOrAbandoned(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, on func(Config) Config) {
		for _, finish := range []string{Cancel, Abandon} {
			for _, names := range []int{1, 500} {
				cfg := on(quick(Waiters))
				cfg.Names, cfg.Finish = names, finish
				r := mustRun(t, cfg)
				if r.Cancelled != 500 || r.Served != 0 || r.Pairs != 0 {
					t.Errorf("%s on %d names: %+v", finish, names, r)
				}
			}
		}
	})
}

func TestWaitersKeepPaceWithAnOverloadedEngine(t *testing.T) {
	t.Parallel()
	cfg := quick(Waiters)
	cfg.Count = 100 // each waits for a turn, and more of them for more turns
	cfg.URL, cfg.Names = redistest.Start(t).URL(), cfg.Count
	cfg.tune = func(ec *engine.Config) { ec.MaxInFlight = 8 }
	r := mustRun(t, cfg)
	if r.Served != 100 || r.Overloaded == 0 {
		t.Errorf("%+v", r)
	}
}

func TestAFutureMadeAgainGoesToTheEndOfItsNamesQueue(t *testing.T) {
	t.Parallel()
	// Three names: a, b, c; the number is the place in the queue.
	queue := []string{"a1", "b1", "c1", "a2", "b2", "c2", "a3", "b3"}
	dropFromQueue(queue, 1, 3, "b4")
	dropFromQueue(queue, 5, 3, "c3")
	dropFromQueue(queue, 0, 3, "a4")
	if want := []string{"a2", "b2", "c1", "a3", "b3", "c3", "a4", "b4"}; !slices.Equal(queue, want) {
		t.Errorf("%q, want %q", queue, want)
	}
}

// Nobody else would remove them: those that were taken have no lease yet.
func TestLocksThatAreTakenOnlyInPartAreGivenBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Do("ACL", "SETUSER", "half", "on", ">right", "~*", "&*", "+@all", "-pexpire")
	cfg := quick(Waiters)
	cfg.URL, cfg.Names = "redis://half:right@"+server.Addr(), 500
	if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "taking the locks: NOPERM") {
		t.Error(err)
	}
	if n := server.Do("DBSIZE"); n != int64(0) {
		t.Errorf("%v keys are left", n)
	}
}

func TestWaitersThatNobodyServesAreStuck(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cfg := quick(Waiters)
	cfg.URL, cfg.Names, cfg.stuckAfter = server.URL(), 50, 100*time.Millisecond
	cfg.Progress = func(p Progress) {
		if p.Stage == "waiting" { // a stranger is quicker
			for _, key := range server.Do("KEYS", "pawl-bench:*").([]any) {
				server.Do("RENAME", key.(string), "aside:"+key.(string))
				server.Do("HSET", key.(string), "stranger:1", "1")
			}
			server.Do("CONFIG", "SET", "maxmemory", "1") // nobody gets in
		}
	}
	r, err := Run(t.Context(), cfg)
	server.Do("FLUSHALL")
	if err != nil {
		t.Fatal(err)
	}
	if r.Stuck != 500 || r.Served != 0 || r.Err() == nil {
		t.Errorf("%+v", r)
	}
}

func TestHeldLocksAreRenewedAndNoneIsLost(t *testing.T) {
	t.Parallel()
	cfg := quick(Held)
	cfg.URL = redistest.Start(t).URL()
	cfg.Lease, cfg.Duration = time.Second, 1500*time.Millisecond
	cputime.Steady(t, cfg.Lease/10, func(t testing.TB) {
		r := mustRun(t, cfg)
		if r.Pairs != 500 || r.Lost != 0 || r.HeldS < 1.5 || r.LatencyUs.P50 <= 0 {
			t.Errorf("%+v", r)
		}
		// Longer than a lease: each was renewed at least once.
		if s := r.RenewalsPerSecond; r.Renewals < 500 || s.Max < s.Min || s.Mean <= 0 || !r.AllRenewed {
			t.Errorf("%+v", r.HeldResult)
		}
	})
}

func TestHeldLocksThatTheServerLostAreCounted(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cfg := quick(Held)
	cfg.URL = server.URL()
	cfg.Progress = func(p Progress) {
		if p.Stage == "holding" {
			for _, key := range server.Do("KEYS", "pawl-bench:*1").([]any) {
				server.Do("DEL", key.(string))
			}
		}
	}
	r, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.Lost != 50 || r.Pairs != 450 || r.Errors != 0 {
		t.Errorf("%+v", r)
	}
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "50 holds were lost") {
		t.Errorf("%v", err)
	}
}

func TestAnInterruptedRunGivesEverythingBack(t *testing.T) {
	t.Parallel()
	for scenario, stages := range map[string][]string{
		Waiters: {"filling", "waiting", "serving"},
		Held:    {"locking", "holding", "unlocking"},
	} {
		for _, stage := range stages {
			server := redistest.Start(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			enough := errors.New("enough")
			cfg := quick(scenario)
			cfg.URL, cfg.Count, cfg.Names = server.URL(), 3000, 3000
			reached := false
			cfg.Progress = func(p Progress) {
				if p.Stage == stage {
					reached = true
					cancel(enough)
				}
			}
			if _, err := Run(ctx, cfg); !errors.Is(err, enough) || !reached {
				t.Errorf("%s, %s: reached %v, %v", scenario, stage, reached, err)
			}
			if n := server.Do("DBSIZE"); n != int64(0) {
				t.Errorf("%s, %s: %v keys are left", scenario, stage, n)
			}
			cancel(nil)
		}
	}
}

func TestRenewalsAreSpreadOverFullSeconds(t *testing.T) {
	t.Parallel()
	var r renewals
	r.add(engine.RenewEnd{Holds: 1000}) // before: not counted
	r.begin()
	r.mu.began = r.mu.began.Add(-3500 * time.Millisecond)
	r.mu.seconds = []int64{10, 0, 20}
	r.mu.total = 30
	r.add(engine.RenewEnd{Holds: 64})
	r.add(engine.RenewEnd{Holds: 64, Err: errors.New("refused")})
	total, spread := r.end()
	if total != 94 || spread != (Spread{Min: 0, Max: 20, Mean: 10}) {
		t.Errorf("%d, %+v", total, spread)
	}
	if want := []int64{10, 0, 20, 64}; !slices.Equal(r.mu.seconds, want) {
		t.Errorf("%v", r.mu.seconds)
	}
}
