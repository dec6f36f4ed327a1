package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/pawl-lock/pawl/bench"
	"github.com/pawl-lock/pawl/internal/redistest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// gnet's worker pool starts these two when it is imported; they never end.
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"),
	)
}

func TestEveryClientTakesItsTurnsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, scenario := range scenarios {
		server := redistest.Start(t)
		var out bytes.Buffer
		args := []string{"--addr", server.URL(), "--goroutines", "8", "--rounds", "2", "--duration", "100ms",
			"--warmup", "20ms", "--format", "json", scenario}
		if err := run(t.Context(), args, &out); err != nil {
			t.Fatal(err)
		}
		var r Report
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if len(r.Clients) != len(subjects) || len(r.Ratios) != len(subjects)-1 {
			t.Fatalf("%s: %s", scenario, out.Bytes())
		}
		for _, c := range r.Clients {
			if len(c.Turns) != 2 || c.Median.PairsPerSecond == 0 || c.Median.P50Us == 0 {
				t.Errorf("%s: %+v", scenario, c)
			}
			if math.Abs(c.Median.CommandsPerPair-2) > 0.02 {
				t.Errorf("%s, %s: %v commands a pair", scenario, c.Name, c.Median.CommandsPerPair)
			}
		}
		if got := server.Do("DBSIZE"); got != int64(0) {
			t.Errorf("%v keys are left", got)
		}
	}
}

func TestRatiosAreThoseOfTheFirstClientsMedians(t *testing.T) {
	t.Parallel()
	turns := func(rates ...float64) (all []*bench.Result) {
		for _, rate := range rates {
			all = append(all, &bench.Result{PairsPerSecond: rate, ClientCPUUsPerPair: 1e6 / rate})
		}
		return all
	}
	r := &Report{Rounds: 3, Clients: []*Client{
		{Name: "a", Turns: turns(300, 900, 200)}, // median 300
		{Name: "b", Turns: turns(10, 200, 150)},  // median 150
		{Name: "c", Turns: turns(400, 200)},      // median 300
	}}
	r.conclude()
	want := []Ratio{{Of: "a", To: "b", PairsPerSecond: 2, ClientCPUUsPerPair: 0.5}, {Of: "a", To: "c", PairsPerSecond: 1}}
	for i, w := range want {
		got := r.Ratios[i]
		if got.Of != w.Of || got.To != w.To || math.Abs(got.PairsPerSecond-w.PairsPerSecond) > 1e-9 ||
			w.ClientCPUUsPerPair != 0 && math.Abs(got.ClientCPUUsPerPair-w.ClientCPUUsPerPair) > 1e-9 {
			t.Errorf("%+v, want %+v", got, w)
		}
	}
	var text bytes.Buffer
	if err := r.writeText(&text); err != nil || !strings.Contains(text.String(), "a to b: 2.00 x the throughput, 0.50 x the client CPU") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

func TestATurnThatWentWrongIsAnError(t *testing.T) {
	t.Parallel()
	r := &Report{Clients: []*Client{{Name: "a", Turns: []*bench.Result{{}, {Stuck: 2}}}}}
	if err := r.err(); err == nil || !strings.Contains(err.Error(), "a, turn 2: ") {
		t.Errorf("%v", err)
	}
}

func TestWrongUseIsRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{}, {"hot"}, {"--clients", "nobody", "uncontended"}, {"--format", "xml", "uncontended"},
		{"--rounds", "0", "uncontended"}, {"--no-such-flag"}, {"single", "uncontended"},
		{"--goroutines", "0", "uncontended"},
	} {
		if err := run(t.Context(), args, nil); exitCode(err) != 64 {
			t.Errorf("%q: %v", args, err)
		}
	}
	if err := run(t.Context(), []string{"hot"}, nil); !errors.Is(err, errUsage) {
		t.Errorf("%v", err)
	}
}
