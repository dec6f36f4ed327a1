package bench

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// between is a short run between processes; started are their commands, in order.
func between(t *testing.T, processes, goroutines int) (cfg Config, started *[]*exec.Cmd) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	started = new([]*exec.Cmd)
	cfg = quick(Hot)
	cfg.Processes, cfg.Goroutines, cfg.Duration = processes, goroutines, 300*time.Millisecond
	cfg.Process = func(ctx context.Context, _ int, url string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, self)
		// With the race detector a process sleeps for a second before it exits, unless told.
		cmd.Env = append(os.Environ(), asProcessEnv+"="+url, "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
		cmd.Stderr = os.Stderr
		*started = append(*started, cmd)
		return cmd
	}
	return cfg, started
}

// ended checks that no process is left.
func ended(t *testing.T, processes []*exec.Cmd) {
	t.Helper()
	for i, cmd := range processes {
		if cmd.ProcessState == nil {
			t.Errorf("process %d has not ended", i+1)
		}
	}
}

func TestProcesses_OneName_GoesFromOneToTheOther(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	cfg, started := between(t, 3, 1)
	cfg.URL = redis.URL()
	r := mustMeasure(t, cfg)
	// The machine had no time for one, or for so few that those at the two ends of the time count much.
	for (r.WithoutTurn > 0 || r.Turns < 50) && cfg.Duration < 20*time.Second {
		cfg.Duration *= 5
		r = mustMeasure(t, cfg)
	}
	if r.Processes != 3 || r.Goroutines != 3 || r.Turns != r.Pairs || r.WithoutTurn != 0 || r.Overlaps != 0 || r.ProcessRSSBytes == 0 {
		t.Errorf("%+v\n%+v", r, r.ProcessesResult)
	}
	if s := r.Shares; s.Min <= 0 || s.Min > s.Median || s.Median > s.Max || s.Min > 1 || s.Max < 1 || s.Max > 3 {
		t.Errorf("shares %+v", s)
	}
	if r.HandOverUs.P50 <= 0 || r.HandOverUs.P50 > r.HandOverUs.P99 || r.LatencyUs.P50 <= 0 {
		t.Errorf("hand-over %+v, wait %+v", r.HandOverUs, r.LatencyUs)
	}
	// An acquire and a release at least. The two ends of the time are not the same instant for all.
	scripts, commands := *r.ScriptCallsPerHandOver, *r.CommandsPerHandOver
	if scripts < 1.8 || commands < scripts || scripts > 20 || r.MessagesPerHandOver > 5 {
		t.Errorf("%v script calls, %v commands, %v messages a hand-over", scripts, commands, r.MessagesPerHandOver)
	}
	if *r.ScriptCallsPerPair != scripts || *r.CommandsPerPair != commands {
		t.Errorf("%v script calls and %v commands a pair", *r.ScriptCallsPerPair, *r.CommandsPerPair)
	}
	ended(t, *started)
	if n := redis.Do("DBSIZE"); n != int64(0) {
		t.Errorf("%v keys are left", n)
	}
}

func TestProcesses_SeveralGoroutines_HandOverInsideToo(t *testing.T) {
	t.Parallel()
	cfg, _ := between(t, 2, 8)
	cfg.Embedded = true
	r := mustMeasure(t, cfg)
	for r.Turns == r.Pairs && cfg.Duration < 20*time.Second { // the machine had time for very few
		cfg.Duration *= 5
		r = mustMeasure(t, cfg)
	}
	if r.Goroutines != 16 || r.Turns == 0 || r.Turns >= r.Pairs || r.CommandsPerHandOver != nil || r.MessagesPerHandOver < 0 {
		t.Errorf("%+v\n%+v", r, r.ProcessesResult)
	}
}

func TestProcesses_One_HasTheLockToItself(t *testing.T) {
	t.Parallel()
	cfg, _ := between(t, 1, 1)
	r := mustMeasure(t, cfg)
	if r.Repeats < r.Turns-1 || r.Shares != (Shares{1, 1, 1}) || r.Overtaken != 0 || r.HandOverUs.Max != 0 {
		t.Errorf("%+v", r.ProcessesResult)
	}
}

func TestProcesses_OneKilled_IsReported(t *testing.T) {
	t.Parallel()
	for _, stage := range []string{"starting", "warm-up", Hot} {
		cfg, started := between(t, 3, 1)
		cfg.Embedded, cfg.Duration, cfg.Warmup = true, time.Minute, time.Second
		var killed *exec.Cmd
		cfg.Progress = func(p Progress) {
			if p.Stage == stage && killed == nil && len(*started) == 3 {
				killed = (*started)[1]
				if err := killed.Process.Kill(); err != nil {
					t.Error(err)
				}
			}
		}
		_, err := Run(t.Context(), cfg)
		var exit *exec.ExitError
		if err == nil || !strings.Contains(err.Error(), "bench: process 2: it ended: ") || !errors.As(err, &exit) || killed == nil {
			t.Errorf("%s: %v", stage, err)
		}
		ended(t, *started)
	}
}

func TestProcesses_Interrupted_AllEnd(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	for _, stage := range []string{"starting", "warm-up", Hot} {
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		cfg, started := between(t, 3, 1)
		cfg.URL, cfg.Duration, cfg.Warmup = redis.URL(), time.Minute, time.Second
		cfg.Progress = func(p Progress) {
			if p.Stage == stage {
				cancel(enough)
			}
		}
		if _, err := Run(ctx, cfg); !errors.Is(err, enough) {
			t.Errorf("%s: %v", stage, err)
		}
		ended(t, *started)
		if n := redis.Do("DBSIZE"); n != int64(0) {
			t.Errorf("%s: %v keys are left", stage, n)
		}
	}
}

func TestProcesses_ServerRefusesThem_SayWhy(t *testing.T) {
	t.Parallel()
	// It takes the coordinator's connection, and the first engine at most.
	redis := redistest.Start(t, redistest.Line("maxclients 5"))
	cfg, started := between(t, 3, 1)
	cfg.URL = redis.URL() + "?dial_timeout=1s"
	_, err := Run(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), "max number of clients reached") || !strings.Contains(err.Error(), "bench: process ") {
		t.Errorf("%v", err)
	}
	ended(t, *started)
}

func TestProcesses_NoSuchProgram_IsReported(t *testing.T) {
	t.Parallel()
	cfg, _ := between(t, 2, 1)
	cfg.Embedded = true
	cfg.Process = func(ctx context.Context, _ int, _ string) *exec.Cmd {
		return exec.CommandContext(ctx, "/no/such/program")
	}
	if _, err := Run(t.Context(), cfg); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// As when the coordinator is killed.
func TestRunProcess_InputEnds_EndsToo(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	cfg, _ := between(t, 1, 1)
	cmd := cfg.Process(t.Context(), 0, redis.URL())
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if err := RunProcess(t.Context(), redis.URL(), engine.ParseURL, strings.NewReader("no order"), nil); err != nil {
		t.Error(err)
	}
}
