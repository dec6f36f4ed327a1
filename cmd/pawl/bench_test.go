package main

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/bench"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// brief makes a benchmark short.
func brief(scenario string, flags ...string) []string {
	return append([]string{"bench", scenario, "--goroutines", "4", "--count", "200",
		"--duration", "50ms", "--warmup", "10ms"}, flags...)
}

// measured runs a benchmark, and again for longer while the machine had no time for a pair. It returns what that
// prints in JSON.
func measured(t *testing.T, env []string, args ...string) (v *invocation, got map[string]any) {
	t.Helper()
	for d := time.Second; ; d *= 5 {
		v = pawl(t, env, args...)
		v.expect(t, 0)
		got = nil
		if err := json.Unmarshal(v.stdout.Bytes(), &got); err != nil {
			t.Fatalf("%v:\n%s", err, v.stdout.String())
		}
		if got["pairs"] != 0.0 || d > 10*time.Second {
			return v, got
		}
		args = append(args, "--duration", d.String()) // the last one counts
	}
}

func TestBenchPrintsOneObject(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	required := []string{"scenario", "server", "comparable", "goroutines", "count", "duration_s", "pairs",
		"pairs_per_second", "client_cpu_us_per_pair", "latency_us", "allocs_per_pair", "heap_bytes",
		"goroutines_peak", "commands_per_pair", "fairness", "errors", "stuck", "leftovers",
		"date", "host", "os", "arch", "cpus", "gomaxprocs", "go", "pawl", "lease_s", "warmup_s", "rss_bytes",
		"server_cpu_percent", "shared_server"}
	for _, scenario := range bench.Scenarios {
		v, got := measured(t, nil, brief(scenario, "--addr", s.URL(), "--format", "json", "--own-names")...)
		for _, field := range required {
			if _, ok := got[field]; !ok {
				t.Errorf("%s: no field %s among %q", scenario, field, slices.Sorted(maps.Keys(got)))
			}
		}
		if got["scenario"] != scenario || got["comparable"] != true || got["pairs"] == 0.0 || got["stuck"] != 0.0 {
			t.Errorf("%s: %v", scenario, got)
		}
		if v.stderr.Len() > 0 { // a bar is for terminals
			t.Errorf("%s: on stderr: %q", scenario, v.stderr.String())
		}
	}
	if n := s.Do("DBSIZE"); n != int64(0) {
		t.Errorf("%v keys are left", n)
	}
}

func TestBenchLoadsNoServerThatWasNotNamed(t *testing.T) {
	t.Parallel()
	s, env := server(t, redistest.Password("right"))
	before := s.CommandStats()["evalsha"]
	// The environment names the server of a service. The program may be on no PATH.
	env = append(env, redistest.BinaryEnv+"="+os.Getenv(redistest.BinaryEnv))
	pawl(t, env, brief("single")...).expect(t, 0, "single, pawl on ")
	pawl(t, env, brief("hot", "--embedded")...).expect(t, 0, "embedded", "cannot be compared")
	if after := s.CommandStats()["evalsha"]; after != before {
		t.Errorf("%d scripts were run on the server of $%s", after-before, target.URLEnv)
	}
	pawl(t, []string{target.PasswordEnv + "=right"}, brief("single", "--addr", "redis://"+s.Addr())...).expect(t, 0)
	if after := s.CommandStats()["evalsha"]; after == before {
		t.Error("nothing was run on the server of --addr")
	}
}

func TestBenchSaysWhyItCannotRun(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Password("right"))
	nowhere := []string{"PATH=/nowhere"}
	pawl(t, nowhere, brief("single")...).expect(t, exit.Server, "install it with", "--addr", "--embedded")
	pawl(t, nil, brief("single", "--addr", "redis://127.0.0.1:1")...).expect(t, exit.Server, "refused", "--addr")
	pawl(t, nil, brief("single", "--addr", "redis://"+s.Addr())...).expect(t, exit.Server, "NOAUTH", target.PasswordEnv)
	pawl(t, nil, "bench").expect(t, exit.Usage, "one scenario is needed: single, uncontended")
	for _, args := range [][]string{
		brief("cold"), brief("single", "--format", "xml"), brief("single", "--goroutines", "0"),
		brief("waiters", "--names", "201"), brief("waiters", "--finish", "never"), brief("single", "hot"),
		brief("single", "--embedded", "--addr", "redis://127.0.0.1:1"), brief("single", "--addr", "127.0.0.1:1"),
		brief("single", "--addr", s.URL()), // with the password
	} {
		pawl(t, nil, args...).expect(t, exit.Usage, "pawl: ")
	}
}

func TestBenchWritesProfiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pawl(t, nil, brief("single", "--embedded", "--profile", dir)...).expect(t, 0)
	files, err := os.ReadDir(dir)
	if err != nil || len(files) < 5 {
		t.Errorf("%v, %v", files, err)
	}
}

func TestAnInterruptedBenchGivesEverythingBack(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for code, sig := range map[int]syscall.Signal{130: syscall.SIGINT, 131: syscall.SIGQUIT} {
		v := start(t, nil, "bench", "held", "--count", "300", "--duration", "1h", "--addr", s.URL())
		eventually(t, "all are held", func() bool { return s.Do("DBSIZE") == int64(300) })
		if err := v.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		v.wait(t).expect(t, code, "pawl: ended by signal: "+sig.String())
		if n := s.Do("DBSIZE"); n != int64(0) {
			t.Errorf("%v keys are left, %v after %v", n, time.Since(began), sig)
		}
	}
}

// As timeout(1) sends it: to its command, and then to the group that this is in.
func TestBench_SecondSignal_GivesEverythingBack(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	v := start(t, nil, "bench", "held", "--count", "5000", "--duration", "1h", "--addr", s.URL())
	eventually(t, "all are held", func() bool { return s.Do("DBSIZE") == int64(5000) })
	for range 2 {
		if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond) // else the kernel may make one of them
	}
	v.wait(t).expect(t, 128+15, "pawl: ended by signal: terminated")
	if n := s.Do("DBSIZE"); n != int64(0) {
		t.Errorf("%v keys are left", n)
	}
}

// As under nohup, or in the background of a script.
func TestBenchLeavesIgnoredSignalsIgnored(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	v := prepare(t, nil)
	v.cmd.Args = []string{"sh", "-c", `trap "" HUP; exec "$0" bench held --count 300 --duration 1h --addr ` + s.URL(), v.cmd.Path}
	v.cmd.Path = "/bin/sh"
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all are held", func() bool { return s.Do("DBSIZE") == int64(300) })
	for _, sig := range []os.Signal{syscall.SIGHUP, os.Interrupt} { // heeded in this order
		if err := v.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	v.wait(t).expect(t, 130, "pawl: ended by signal: interrupt")
}
