package bench

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// asProcessEnv makes the test binary one of the processes that contend, on the server that it names.
const asProcessEnv = "BENCH_TEST_AS_PROCESS"

func TestMain(m *testing.M) {
	if url := os.Getenv(asProcessEnv); url != "" {
		if RunProcess(context.Background(), url, engine.ParseURL, os.Stdin, os.Stdout) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m,
		// gnet's worker pool starts these two when it is imported; they never end.
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"),
	)
}

// quick is a run that is over soon.
func quick(scenario string) Config {
	cfg := DefaultConfig(scenario)
	cfg.Goroutines, cfg.Count = 8, 500
	cfg.Duration, cfg.Warmup = 100*time.Millisecond, 20*time.Millisecond
	return cfg
}

// mustRun runs a scenario; the run must be without blemish.
func mustRun(t testing.TB, cfg Config) *Result {
	t.Helper()
	ctx, cancel := cputime.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := Run(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Err(); err != nil {
		t.Fatalf("%v\n%+v", err, r)
	}
	return r
}

// mustMeasure is mustRun, and again for longer while the machine had no time for a pair.
func mustMeasure(t testing.TB, cfg Config) *Result {
	t.Helper()
	for {
		r := mustRun(t, cfg)
		if r.Pairs > 0 || cfg.Duration >= 10*time.Second {
			return r
		}
		cfg.Duration *= 5
	}
}

// eachServer runs a test on a redis-server and on the embedded one.
func eachServer(t *testing.T, test func(t *testing.T, on func(Config) Config)) {
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		test(t, func(cfg Config) Config { cfg.URL = server.URL(); return cfg })
		if n := server.Do("DBSIZE"); n != int64(0) {
			t.Errorf("%v keys are left", n)
		}
	})
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		test(t, func(cfg Config) Config { cfg.Embedded = true; return cfg })
	})
}

// openServer opens a test's server as a run does.
func openServer(t testing.TB, url string) *Server {
	t.Helper()
	s, err := OpenServer(t.Context(), url, url == "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}
