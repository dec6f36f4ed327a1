package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pawl-lock/pawl/bench"
	"github.com/pawl-lock/pawl/internal/redistest"
)

func TestMain(m *testing.M) {
	if os.Getenv(sayQueueEnv) != "" {
		fmt.Print(rueidisQueue)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m,
		// gnet's worker pool starts these two when it is imported; they never end.
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"),
	)
}

// reported compares clients, and again in longer turns while the machine had no time for a pair of each in each.
func reported(t *testing.T, turn time.Duration, args ...string) (r Report) {
	t.Helper()
	for ; ; turn *= 5 {
		var out bytes.Buffer
		if err := run(t.Context(), append([]string{"--format", "json", "--duration", turn.String()}, args...), &out); err != nil {
			t.Fatal(err)
		}
		r = Report{}
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		none := func(c *Client) bool { return c.Median.PairsPerSecond.Least <= 0 }
		if turn > 2*time.Second || !slices.ContainsFunc(r.Clients, none) {
			return r
		}
		t.Logf("%v: not a pair of each client in each turn: %v", turn, args)
	}
}

// It has no test beside it: the queue of rueidis changes with the turns.
func TestEveryClientTakesItsTurnsAndLeavesNothing(t *testing.T) {
	for _, scenario := range []string{bench.Single, bench.Uncontended, bench.Hot} { // and kinds: see kinds_test.go
		server := redistest.Start(t)
		r := reported(t, 100*time.Millisecond, "--addr", server.URL(), "--goroutines", "8", "--rounds", "2", "--warmup", "20ms", scenario)
		if all := len(subjectNames(scenario)); len(r.Clients) != all || len(r.Ratios) < all-2 {
			t.Fatalf("%s: %+v", scenario, r)
		}
		for _, c := range r.Clients {
			if len(c.Turns) != 2 || c.Median.PairsPerSecond.Median == 0 || c.Median.P50Us.Median == 0 {
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

// rueidis reads the variable when the process begins, before anything of ours runs.
func TestRueidisQueue_Environment_IsTheVariableThatRueidisReads(t *testing.T) {
	t.Parallel()
	self := exec.Command(os.Args[0])
	self.Env = append(os.Environ(), sayQueueEnv+"=1", "RUEIDIS_QUEUE_TYPE=flowbuffer")
	if out, err := self.Output(); string(out) != "flowbuffer" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}

const sayQueueEnv = "PEERS_TEST_SAY_QUEUE"

func TestSubjects_Single_HaveARowForEachContext(t *testing.T) {
	t.Parallel()
	names := subjectNames(bench.Single)
	for _, name := range subjectNames(bench.Uncontended) {
		if !slices.Contains(names, name) || !slices.Contains(names, name+withoutCancel) {
			t.Errorf("%s: there are %v", name, names)
		}
	}
	var got context.Context
	pair := background{shows{&got}}.Worker("x")
	if err := pair(t.Context()); err != nil || got.Done() != nil {
		t.Errorf("it was called with %v: %v", got, err)
	}
}

// shows is a client that keeps the context of its last call.
type shows struct{ ctx *context.Context }

func (shows) Name() string { return "shows" }
func (shows) Close() error { return nil }

func (s shows) Worker(string) func(context.Context) error {
	return func(ctx context.Context) error {
		*s.ctx = ctx
		return nil
	}
}

// Else the connection of a peer would have lost its shorter way before the first call that counts.
func TestOpenScripted_Scripts_AreLoadedWithoutCancel(t *testing.T) {
	t.Parallel()
	var loads loader
	client, err := openScripted(t.Context(), "a", &loads)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Close(); err != nil || loads.calls != 2 || loads.cancellable != 0 {
		t.Errorf("%+v, %v", loads, err)
	}
}

// loader is a caller that counts loads, and those that can be cancelled.
type loader struct{ calls, cancellable int }

func (l *loader) load(ctx context.Context, _ string) (string, error) {
	if l.calls++; ctx.Done() != nil {
		l.cancellable++
	}
	return "sha", nil
}

func (*loader) call(context.Context, string, string, ...string) (int64, error) { return 0, nil }
func (*loader) Close() error                                                   { return nil }

func TestHot_SeveralEngines_ContendWithConnectionsOfTheirOwn(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var out bytes.Buffer
	args := []string{"--addr", server.URL(), "--goroutines", "8", "--engines", "4", "--rounds", "2", "--duration", "100ms", "--warmup", "20ms", bench.Hot}
	before := server.Info("INFO", "stats")
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{"8 goroutines of 4 engines", "redislock (polling: ", "redsync (polling: ", "  pawl (its defaults)"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	opened := connectionsIn(t, server.Info("INFO", "stats")) - connectionsIn(t, before)
	if least := 2 * 4 * len(subjectNames(bench.Hot)); opened < least {
		t.Errorf("%d connections, want %d at least", opened, least)
	}
}

// Each client's commands are those that it sends, whether they call scripts or not.
func TestHot_Engines_HaveOneGoroutineEachAndCountsOfTheirOwn(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := reported(t, 200*time.Millisecond, "--addr", server.URL(), "--engines", "3", "--rounds", "2", "--warmup", "50ms", bench.Hot)
	if r.Goroutines != 3 || r.Engines != 3 {
		t.Errorf("%d goroutines of %d engines", r.Goroutines, r.Engines)
	}
	for _, c := range r.Clients {
		m := c.Median
		if m.CommandsPerPair < 1.8 || m.CommandsPerPair < m.ScriptCallsPerPair || m.ScriptCallsPerPair < 0.9 {
			t.Errorf("%s: %v commands, %v script calls a pair", c.Name, m.CommandsPerPair, m.ScriptCallsPerPair)
		}
		if c.Name == "redsync" && m.CommandsPerPair < m.ScriptCallsPerPair+0.9 {
			t.Errorf("its SET is not counted: %v commands, %v script calls a pair", m.CommandsPerPair, m.ScriptCallsPerPair)
		}
		if m.PairsPerSecond.Least <= 0 || m.PairsPerSecond.Least > m.PairsPerSecond.Median || m.PairsPerSecond.Median > m.PairsPerSecond.Most {
			t.Errorf("%s: %+v", c.Name, m.PairsPerSecond)
		}
	}
}

func connectionsIn(t *testing.T, info string) int {
	t.Helper()
	_, after, _ := strings.Cut(info, "total_connections_received:")
	number, _, _ := strings.Cut(after, "\r")
	n, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	return n
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
	if hot := r.Clients[0].Hot[0]; hot.TimedOut < 8 || hot.WithoutPair != 8 || r.Clients[0].Turns[0].Pairs != 0 {
		t.Errorf("%+v", hot)
	}
	if text := r.Clients[0].hot(); !strings.HasPrefix(text, "8 goroutines without a pair, ") {
		t.Error(text)
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
	r, err := compare(t.Context(), server, []subject{s}, cfg, 1, hotConfig{50 * time.Millisecond, 1})
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
		{"--engines", "0", "hot"}, {"--engines", "9", "--goroutines", "8", "hot"}, {"--engines", "2", "--goroutines", "8", "uncontended"},
		{"--clients", "pawl-background", "uncontended"},
	} {
		if err := run(t.Context(), args, nil); exitCode(err) != 64 {
			t.Errorf("%q: %v", args, err)
		}
	}
	if err := run(t.Context(), []string{"waiters"}, nil); !errors.Is(err, errUsage) {
		t.Errorf("%v", err)
	}
}
