package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

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
		if scenario == kinds {
			continue // see kinds_test.go
		}
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
		if all := len(subjectNames(scenario)); len(r.Clients) != all || len(r.Ratios) != all-1 {
			t.Fatalf("%s: %s", scenario, out.Bytes())
		}
		for _, c := range r.Clients {
			if len(c.Turns) != 2 || c.Median.PairsPerSecond == 0 || c.Median.P50Us == 0 {
				t.Errorf("%s: %+v", scenario, c)
			}
			if scenario == bench.Hot {
				for _, hot := range c.Hot {
					// rueidislock may leave waiters asleep.
					if hot.LostUpdates != 0 || hot.TimedOut != 0 && c.Name != "rueidislock" {
						t.Errorf("%s: %+v", c.Name, hot)
					}
				}
				if len(c.Hot) != 2 {
					t.Errorf("%s: %d turns", c.Name, len(c.Hot))
				}
			} else if math.Abs(c.Median.CommandsPerPair-2) > 0.02 {
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

// open is a locker that excludes nobody.
type open struct{}

func (open) Close() error { return nil }

func (open) For(string) func(context.Context) (func(context.Context) error, error) {
	return func(context.Context) (func(context.Context) error, error) {
		return func(context.Context) error { return nil }, nil
	}
}

// shut is a locker that never grants.
type shut struct{ open }

func (shut) For(string) func(context.Context) (func(context.Context) error, error) {
	return func(ctx context.Context) (func(context.Context) error, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
}

func TestALockThatExcludesNobodyIsFound(t *testing.T) {
	t.Parallel()
	r := contendOn(t, open{})
	if err := r.err(); err == nil || !strings.Contains(err.Error(), "updates were lost") {
		t.Errorf("%v", err)
	}
}

func TestWaitersThatAreNeverGrantedAreCounted(t *testing.T) {
	t.Parallel()
	r := contendOn(t, shut{})
	if r.Clients[0].Hot[0].TimedOut < 8 || r.Clients[0].Turns[0].Pairs != 0 {
		t.Errorf("%+v", r.Clients[0].Hot[0])
	}
	if err := r.err(); err != nil {
		t.Error(err)
	}
}

// contendOn gives one locker one turn of hot.
func contendOn(t *testing.T, l locker) *Report {
	t.Helper()
	server, err := bench.OpenServer(t.Context(), redistest.Start(t).URL(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	cfg := bench.DefaultConfig(bench.Hot)
	cfg.Goroutines, cfg.Duration, cfg.Warmup = 8, 100*time.Millisecond, 0
	s := subject{name: "a", contend: func(context.Context, string) (locker, error) { return l, nil }}
	r, err := compare(t.Context(), server, []subject{s}, cfg, 1, 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	return r
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
		{}, {"waiters"}, {"--clients", "nobody", "uncontended"}, {"--clients", "rueidis", "hot"}, {"--patience", "1h", "hot"}, {"--format", "xml", "uncontended"},
		{"--rounds", "0", "uncontended"}, {"--no-such-flag"}, {"single", "uncontended"},
		{"--goroutines", "0", "uncontended"}, {"--clients", "pawl", "kinds"},
	} {
		if err := run(t.Context(), args, nil); exitCode(err) != 64 {
			t.Errorf("%q: %v", args, err)
		}
	}
	if err := run(t.Context(), []string{"waiters"}, nil); !errors.Is(err, errUsage) {
		t.Errorf("%v", err)
	}
}
