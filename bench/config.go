package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// The scenarios.
const (
	Single      = "single"
	Uncontended = "uncontended"
	Hot         = "hot"
	Waiters     = "waiters"
	Held        = "held"
)

// Scenarios lists them all.
var Scenarios = []string{Single, Uncontended, Hot, Waiters, Held}

// What becomes of the futures of Waiters after the measuring.
const (
	Serve   = "serve"   // the holder releases; every future is granted and unlocked in its turn
	Cancel  = "cancel"  // the one context of all futures is cancelled
	Abandon = "abandon" // every future is abandoned
)

// ErrInvalid means that the Config is wrong; the text names every bad field.
var ErrInvalid = errors.New("bench: invalid configuration")

// Config says what to measure and where.
type Config struct {
	Scenario string
	// URL is the server, as engine.ParseURL takes it. Empty: a redis-server of our
	// own is started.
	URL string
	// Parse, if set, is used instead of engine.ParseURL: it adds certificates and passwords.
	Parse func(url string) (engine.Config, error)
	// Embedded measures on the server inside this process, whose figures compare
	// with nothing.
	Embedded bool
	// Goroutines are the workers of Uncontended and Hot, with Processes those of each.
	Goroutines int
	// Processes is how many processes contend in Hot, each with an engine of its own. They are
	// started for the run. 0: this process alone.
	Processes int
	// Process makes the command of one of them, which calls RunProcess with the URL. Its standard
	// input and output belong to the run. It must come from exec.CommandContext.
	Process func(ctx context.Context, number int, url string) *exec.Cmd
	// Plain are commands, in lower case, that the client sends and that no script of it calls, if
	// it is not Pawl: for the counts.
	Plain []string
	// Count is the number of futures of Waiters, of holds of Held.
	Count int
	// Names is on how many names the futures of Waiters wait.
	Names int
	// Duration is how long is measured; in Waiters and Held the idle time between
	// filling and emptying. 0: 5 s; in Held until every hold has been renewed once.
	Duration time.Duration
	// Warmup is how long the loops run before anything is counted.
	Warmup time.Duration
	// Lease is what the watchdog gives a hold; 0: the engine's default.
	Lease time.Duration
	// Finish is Serve, Cancel or Abandon.
	Finish string
	// Profile is a directory for profiles of the run; empty: none.
	Profile string
	// Progress, if set, is told how far the run is, now and then, from the calling
	// goroutine.
	Progress func(Progress)

	stuckAfter time.Duration        // tests shorten it
	tune       func(*engine.Config) // tests
}

// Progress is how far a stage of the run is.
type Progress struct {
	Stage       string
	Done, Total int64
}

// DefaultConfig is a run of a scenario that takes a few seconds.
func DefaultConfig(scenario string) Config {
	return Config{
		Scenario: scenario, Goroutines: 64, Count: 100_000, Names: 1,
		Warmup: time.Second, Finish: Serve,
	}
}

// withDefaults fills in what depends on other fields.
func (c Config) withDefaults() Config {
	if c.Warmup > 0 && (c.Scenario == Waiters || c.Scenario == Held) {
		c.Warmup = 0 // only the loops have one
	}
	switch {
	case c.Duration != 0:
	case c.Scenario == Held:
		c.Duration = firstRenewals(c.lease())
	default:
		c.Duration = 5 * time.Second
	}
	return c
}

const defaultLease = 30 * time.Second // the engine's

// lease is what the watchdog gives a hold.
func (c Config) lease() time.Duration {
	if c.Lease != 0 {
		return c.Lease
	}
	return defaultLease
}

// firstRenewals is after how long every hold has been renewed once: the first renewals
// lie between a sixth and a third of the lease, and here is some time to spare.
func firstRenewals(lease time.Duration) time.Duration { return lease * 2 / 5 }

// stuckAfter is how long after the end a worker may still wait: longer than any
// fair queue takes, and short enough for a user who looks at the screen.
const stuckAfter = 10 * time.Second

const (
	mostProcesses = 1000
	// longestTurns bounds what a run between processes remembers: ten thousand turns a second
	// are 400 kB.
	longestTurns = 10 * time.Minute
)

// validate reports every bad field at once.
func (c Config) validate() error {
	var bad []string
	check := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Sprintf(format, args...))
		}
	}
	check(slices.Contains(Scenarios, c.Scenario), "scenario (%q) must be one of %s", c.Scenario, strings.Join(Scenarios, ", "))
	check(c.URL == "" || !c.Embedded, "a server's address must not be combined with the embedded server")
	check(c.Goroutines > 0 && c.Goroutines <= 1<<20, "goroutines (%d) must be within 1 and %d", c.Goroutines, 1<<20)
	check(c.Processes >= 0 && c.Processes <= mostProcesses, "processes (%d) must be within 1 and %d", c.Processes, mostProcesses)
	check(c.Processes == 0 || c.Process != nil, "processes need Config.Process")
	check(c.Processes == 0 || c.Scenario == Hot, "processes are for %s, not for %s", Hot, c.Scenario)
	check(c.Processes == 0 || c.Duration <= longestTurns, "duration (%v) must be at most %v with processes: each turn is kept", c.Duration, longestTurns)
	check(c.Count > 0 && c.Count <= 10_000_000, "count (%d) must be within 1 and 10000000", c.Count)
	check(c.Names > 0 && (c.Scenario != Waiters || c.Names <= c.Count), "names (%d) must be within 1 and count (%d)", c.Names, c.Count)
	check(c.Duration > 0 && c.Duration <= 24*time.Hour, "duration (%v) must be positive, and at most 24h", c.Duration)
	check(c.Warmup >= 0 && c.Warmup <= time.Hour, "warmup (%v) must not be negative, and at most 1h", c.Warmup)
	check(c.Lease >= 0, "lease (%v) must not be negative", c.Lease)
	check(slices.Contains([]string{Serve, Cancel, Abandon}, c.Finish), "finish (%q) must be one of %s, %s, %s", c.Finish, Serve, Cancel, Abandon)
	if bad == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrInvalid, strings.Join(bad, "; "))
}

func (c Config) patience() time.Duration {
	if c.stuckAfter > 0 {
		return c.stuckAfter
	}
	return stuckAfter
}

func (c Config) progress(stage string, done, total int64) {
	if c.Progress != nil {
		c.Progress(Progress{Stage: stage, Done: done, Total: total})
	}
}
