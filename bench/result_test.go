package bench

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/bench/internal/latency"
	"github.com/pawl-lock/pawl/bench/internal/process"
)

var update = flag.Bool("update", false, "write the golden files")

// sample results, one of each shape.
func sampleResults() map[string]*Result {
	commands := 2.0
	loop := Result{
		Scenario: Uncontended, Client: "pawl", Server: "redis 7.0.15", Comparable: true, Goroutines: 64,
		Conditions: Conditions{
			Date: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Host: "bench-1", OS: "linux", Arch: "amd64",
			CPU: "Example 3000", CPUs: 4, GOMAXPROCS: 4, Go: "go1.26", Pawl: "v0.9.0",
			Commit: "0123456789abcdef0123456789abcdef01234567", LeaseS: 30, WarmupS: 1, RSSBytes: 64 << 20, ServerCPUPercent: 98.4,
		},
		Pairs: 480_000, Fairness: Fairness{Min: 7400, Max: 7600, Mean: 7500}, HeapBytes: 4096, GoroutinesPeak: 1,
	}
	h := latency.NewHistogram()
	for us := 1; us <= 1000; us++ {
		latency.Record(h, time.Duration(us)*time.Microsecond)
	}
	loop.finish(process.Usage{Elapsed: 5 * time.Second, CPU: 1920 * time.Millisecond, Allocs: 960_000}, counts{true, 960_000, 950_400, 5 * time.Second}, 480_000, h)
	waiters := loop
	waiters.Scenario, waiters.Count, waiters.Goroutines, waiters.Fairness = Waiters, 100_000, 1, Fairness{}
	waiters.CommandsPerPair = &commands
	waiters.WaitersResult = &WaitersResult{Names: 1, Finish: Serve, Served: 100_000, IdleS: 5, IdleCPUPercent: 0.25}
	held := waiters
	held.Scenario, held.WaitersResult, held.Comparable, held.Server = Held, nil, false, "embedded"
	held.CommandsPerPair, held.SharedServer = nil, true
	held.HeldResult = &HeldResult{HeldS: 60, HeldCPUPercent: 3, Lost: 2, Renewals: 600_000, RenewalsPerSecond: Spread{Min: 9000, Max: 11000, Mean: 10_000}}
	held.Stuck, held.Leftovers = 1, Leftovers{Keys: 3, Channels: 4, Unknown: "bench: SCAN: i/o timeout"}
	held.Errors, held.FirstError = 5, "engine: lock was lost"
	processes := loop
	processes.Scenario, processes.Goroutines = Hot, 100
	processes.ProcessesResult = &ProcessesResult{
		Processes: 50, Turns: 240_000, HandOverUs: Latency{P50: 120, P99: 900, P999: 1500, Max: 20_000},
		ScriptCallsPerHandOver: &commands, CommandsPerHandOver: &commands, MessagesPerHandOver: 49.5,
		Shares: Shares{Min: 0, Median: 0.98, Max: 1.31}, WithoutTurn: 1, Repeats: 1200, Overtaken: 17, Overlaps: 2, ProcessRSSBytes: 18 << 20,
	}
	return map[string]*Result{"uncontended": &loop, "waiters": &waiters, "held": &held, "processes": &processes}
}

func TestResultsHaveTheirFormats(t *testing.T) {
	t.Parallel()
	for name, r := range sampleResults() {
		var asJSON, asText bytes.Buffer
		if err := r.WriteJSON(&asJSON); err != nil {
			t.Fatal(err)
		}
		if err := r.WriteText(&asText); err != nil {
			t.Fatal(err)
		}
		golden(t, name+".json", asJSON.Bytes())
		golden(t, name+".txt", asText.Bytes())
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what is written (go test -update accepts it):\n%s", path, got)
	}
}

func TestErrNamesEverythingThatWentWrong(t *testing.T) {
	t.Parallel()
	results := sampleResults()
	if err := results["waiters"].Err(); err != nil {
		t.Errorf("a clean run: %v", err)
	}
	if err := results["processes"].Err(); err == nil || err.Error() != "bench: 2 turns began before the one before had ended: two processes had the lock at once" {
		t.Errorf("two holders at once: %v", err)
	}
	err := results["held"].Err()
	if err == nil {
		t.Fatal("no error")
	}
	want := "bench: 1 still waited 10 s after the end\n" +
		"bench: 5 operations failed, one of them: engine: lock was lost\n" +
		"bench: 2 holds were lost\n" +
		"bench: 3 keys are left on the server\n" +
		"bench: 4 channels are still subscribed to\n" +
		"bench: what is left is not known: bench: SCAN: i/o timeout"
	if err.Error() != want {
		t.Errorf("%v", err)
	}
}
