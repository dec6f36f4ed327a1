package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/bench"
	"github.com/pawl-lock/pawl/internal/redistest"
)

func TestEachWorkloadIsDoneAndLeavesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	server, err := bench.OpenServer(t.Context(), s.URL(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	cfg := bench.DefaultConfig(bench.Hot)
	cfg.Goroutines, cfg.Duration, cfg.Warmup = 1, 50*time.Millisecond, 0
	for _, w := range workloads {
		r, err := kindTurn(t.Context(), server, w, cfg)
		for long := cfg; err == nil && r.Pairs == 0 && long.Duration < 10*time.Second; { // the machine had no time for one
			long.Duration *= 5
			r, err = kindTurn(t.Context(), server, w, long)
		}
		if err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		want := 2.0
		switch w.name {
		case "latch":
			want = 1
		case "multi": // two locks
			want = 4
		}
		if err := r.Err(); err != nil || r.Pairs == 0 || math.Abs(*r.CommandsPerPair-want) > 0.1+20/float64(r.Pairs) { // pairs of the two ends of the time
			t.Errorf("%s: %v commands a pair, %v", w.name, *r.CommandsPerPair, err)
		}
		if got := s.Do("DBSIZE"); got != int64(0) {
			t.Errorf("%s: left are %v", w.name, s.Do("KEYS", "*"))
		}
	}
}

func TestKindsBesideRedisson(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var out bytes.Buffer
	args := []string{"--addr", s.URL(), "--goroutines", "32", "--rounds", "2", "--duration", "200ms", "--warmup", "0"}
	err := run(t.Context(), append(args, "--format", "json", kinds), &out)
	if errors.Is(err, errNotBuilt) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	var report KindsReport
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Workloads) != len(workloads) {
		t.Fatalf("%s", out.Bytes())
	}
	for _, r := range report.Workloads {
		for _, c := range r.Clients {
			if len(c.Turns) != 2 || c.Median.PairsPerSecond.Median == 0 || c.Median.CommandsPerPair == 0 {
				t.Errorf("%s, %s: %+v", r.Scenario, c.Name, c.Median)
			}
		}
	}
	var text bytes.Buffer
	if err := report.writeText(&text); err != nil || !strings.Contains(text.String(), "readers, redisson") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

func TestRedissonThatIsNotBuilt(t *testing.T) {
	t.Parallel()
	if _, err := openRedisson(t.TempDir(), "redis://127.0.0.1:1"); !errors.Is(err, errNotBuilt) {
		t.Errorf("%v", err)
	}
}
