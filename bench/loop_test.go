package bench

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/bench/internal/redisadmin"
	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

func TestLoopsCountPairsAndLeaveNothing(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, on func(Config) Config) {
		for _, scenario := range []string{Single, Uncontended, Hot} {
			cfg := on(quick(scenario))
			r := mustMeasure(t, cfg)
			workers := 8
			if scenario == Single {
				workers = 1
			}
			if r.Scenario != scenario || r.Goroutines != workers || r.Client != "pawl" || r.Comparable == cfg.Embedded {
				t.Errorf("%s: %+v", scenario, r)
			}
			if r.Pairs == 0 || r.PairsPerSecond <= 0 || r.DurationS < 0.1 || r.LatencyUs.P50 <= 0 || r.LatencyUs.Max < r.LatencyUs.P999 {
				t.Errorf("%s: %+v", scenario, r)
			}
			f := r.Fairness
			if f.Min > f.Max || math.Abs(f.Mean*float64(workers)-float64(r.Pairs)) > 0.5 {
				t.Errorf("%s: fairness %+v of %d pairs", scenario, f, r.Pairs)
			}
			switch {
			case cfg.Embedded:
				if r.CommandsPerPair != nil {
					t.Errorf("the embedded server is said to count commands")
				}
			case scenario != Hot && *r.CommandsPerPair != 2:
				t.Errorf("%s: %v commands a pair", scenario, *r.CommandsPerPair)
			}
		}
	})
}

func TestRunStartsAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	r := mustRun(t, quick(Uncontended))
	if !strings.HasPrefix(r.Server, "redis ") && !strings.HasPrefix(r.Server, "valkey ") {
		t.Errorf("ran on %q", r.Server)
	}
}

func TestProfileIsWritten(t *testing.T) {
	// Not parallel: there is one CPU profile in a process.
	cfg := quick(Uncontended)
	cfg.Embedded, cfg.Profile = true, t.TempDir()
	mustRun(t, cfg)
	files, err := filepath.Glob(filepath.Join(cfg.Profile, "*.pprof"))
	if err != nil || len(files) < 2 {
		t.Errorf("profiles: %q, %v", files, err)
	}
}

// fake is a client whose workers do what a function says; i counts workers.
type fake struct {
	workers int
	pair    func(ctx context.Context, worker int, name string) error
}

func (f *fake) Name() string { return "fake" }
func (f *fake) Close() error { return nil }

func (f *fake) Worker(name string) func(context.Context) error {
	i := f.workers
	f.workers++
	return func(ctx context.Context) error { return f.pair(ctx, i, name) }
}

// nap is a pair that takes a moment.
func nap(ctx context.Context) error {
	sleep(ctx, 100*time.Microsecond)
	return nil
}

func TestStuckWorkersAreCountedAndNotWaitedFor(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	for name, wait := range map[string]func(context.Context){
		"until cancelled": func(ctx context.Context) { <-ctx.Done() },
		"deaf":            func(context.Context) { <-release },
	} {
		for _, warmup := range []time.Duration{0, 20 * time.Millisecond} {
			cputime.Steady(t, 20*time.Millisecond, func(t testing.TB) {
				server := openServer(t, "")
				cfg := quick(Hot)
				cfg.Warmup, cfg.stuckAfter = warmup, 50*time.Millisecond
				r, err := RunLoop(t.Context(), server, &fake{pair: func(ctx context.Context, i int, _ string) error {
					if i >= 5 { // three of eight
						wait(ctx)
					}
					return nap(ctx)
				}}, cfg)
				if err != nil {
					t.Fatal(err)
				}
				if r.Stuck != 3 || r.Pairs == 0 || r.Fairness.Min != 0 || r.Errors != 0 {
					t.Errorf("%s, warm-up %v: %+v", name, warmup, r)
				}
				if err := r.Err(); err == nil || !strings.Contains(err.Error(), "3 still waited") {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
	}
}

func TestAllWorkersStuckIsAResult(t *testing.T) {
	t.Parallel()
	cfg := quick(Hot)
	cfg.Warmup, cfg.stuckAfter = 0, 20*time.Millisecond
	r, err := RunLoop(t.Context(), openServer(t, ""), &fake{pair: func(ctx context.Context, _ int, _ string) error {
		<-ctx.Done()
		return ctx.Err()
	}}, cfg)
	if err != nil || r.Stuck != 8 || r.Pairs != 0 || r.PairsPerSecond != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestFailuresAreCountedAndOneIsQuoted(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	cfg := quick(Hot)
	cfg.Warmup = 0 // in which a worker may have had no other turn than one that fails
	run := func() (*Result, error) {
		return RunLoop(t.Context(), openServer(t, ""), &fake{pair: func(ctx context.Context, _ int, _ string) error {
			if calls.Add(1)%4 == 0 {
				return errors.New("no luck")
			}
			return nap(ctx)
		}}, cfg)
	}
	r, err := run()
	for ; err == nil && (r.Errors == 0 || r.Pairs == 0) && cfg.Duration < 10*time.Second; r, err = run() { // the machine had no time for both
		cfg.Duration *= 5
	}
	if err != nil {
		t.Fatal(err)
	}
	if r.Errors == 0 || r.Pairs == 0 || r.FirstError != "no luck" {
		t.Errorf("%+v", r)
	}
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "no luck") {
		t.Errorf("%v", err)
	}
}

func TestAClientThatOnlyFailsFailsTheWarmUp(t *testing.T) {
	t.Parallel()
	cfg := quick(Uncontended)
	cfg.Warmup = time.Second // in which a worker has a turn, on a busy machine too
	_, err := RunLoop(t.Context(), openServer(t, ""), &fake{pair: func(context.Context, int, string) error {
		return errors.New("no server")
	}}, cfg)
	if err == nil || !strings.Contains(err.Error(), "warm-up: no server") {
		t.Errorf("%v", err)
	}
}

func TestGoroutinesOfTheClientAreCounted(t *testing.T) {
	t.Parallel()
	cfg := quick(Single)
	r, err := RunLoop(t.Context(), openServer(t, ""), &fake{pair: func(ctx context.Context, _ int, _ string) error {
		done := make(chan struct{}, 2000) // more than the tests beside this one have
		for range cap(done) {
			go func() { sleep(ctx, 300*time.Millisecond); done <- struct{}{} }()
		}
		for range cap(done) {
			<-done
		}
		return nil
	}}, cfg)
	// Tests beside this one may end meanwhile.
	if err != nil || r.GoroutinesPeak == 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestLeftoversAreFound(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	for _, url := range []string{redis.URL(), ""} {
		server := openServer(t, url)
		server.cleanWithin = 50 * time.Millisecond
		cfg := quick(Uncontended)
		var forgot atomic.Bool
		run := func() (*Result, error) {
			return RunLoop(t.Context(), server, &fake{pair: func(ctx context.Context, i int, name string) error {
				if i == 3 && !forgot.Swap(true) {
					forget(t, server.url, name)
				}
				return nap(ctx)
			}}, cfg)
		}
		r, err := run()
		for ; err == nil && !forgot.Load() && cfg.Duration < 10*time.Second; r, err = run() { // the machine had no time for that one
			cfg.Duration *= 5
		}
		if err != nil {
			t.Fatal(err)
		}
		if r.Leftovers != (Leftovers{Keys: 1, Channels: 1}) {
			t.Errorf("on %s: %+v", r.Server, r.Leftovers)
		}
		err = r.Err()
		if err == nil || !strings.Contains(err.Error(), "1 keys are left") || !strings.Contains(err.Error(), "1 channels are still") {
			t.Errorf("%v", err)
		}
	}
}

// forget leaves a key and a subscription behind, until the test ends.
func forget(t *testing.T, url, name string) {
	cfg, err := engine.ParseURL(url)
	if err != nil {
		t.Error(err)
		return
	}
	a, err := redisadmin.Dial(context.Background(), cfg)
	if err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(a.Close)
	for _, words := range [][]string{{"HSET", name, "me", "1"}, {"SUBSCRIBE", "redisson_lock__channel:{" + name + "}"}} {
		if _, err := a.Do(words...); err != nil {
			t.Error(err)
		}
	}
}

func TestAnInterruptedLoopReturnsAtOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cfg := quick(Uncontended)
	cfg.Embedded, cfg.Duration = true, time.Hour
	cfg.Progress = func(p Progress) {
		if p.Stage == Uncontended {
			cancel(enough)
		}
	}
	if _, err := Run(ctx, cfg); !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
}
