// Command peers measures Pawl beside other clients: one process, one server, the
// loop of package bench, taking turns, so that what disturbs one disturbs all. The
// figures of two separate runs must not be compared.
//
//	go run . single
//	go run . --goroutines 64 uncontended
//	go run . --goroutines 64 hot
//	go run . --engines 100 hot
//	go run . --goroutines 64 kinds
//
// It is a module of its own: what Pawl is compared with never becomes a dependency
// of it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/bench"
	"github.com/pawl-lock/pawl/internal/redistest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "peers:", err)
	stop()
	os.Exit(exitCode(err))
}

// The exit codes are those of the command pawl.
func exitCode(err error) int {
	switch {
	case errors.Is(err, errUsage), errors.Is(err, bench.ErrInvalid):
		return 64
	case errors.Is(err, redistest.ErrNotInstalled):
		return 69
	case errors.Is(err, context.Canceled):
		return 130 // as after SIGINT
	}
	return 1
}

var errUsage = errors.New("usage: peers [flags] single|uncontended|hot|kinds")

// scenarios are the closed loops. A client that only calls scripts takes no part in hot:
// it cannot wait for a lock.
var scenarios = []string{bench.Single, bench.Uncontended, bench.Hot, kinds}

// mostPatience is less than the time after which a loop calls a worker stuck, and leaves it.
const mostPatience = 9 * time.Second

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	addr := flags.String("addr", "", "URL of the server; empty: start a redis-server")
	clients := flags.String("clients", "", "what to measure; the first is compared with the others; empty: all of the scenario")
	rounds := flags.Int("rounds", fewest, "how often each client has its turn; fewer than 10 tell no difference")
	format := flags.String("format", "text", "text or json")
	cfg := bench.DefaultConfig("")
	flags.IntVar(&cfg.Goroutines, "goroutines", cfg.Goroutines, "workers of uncontended and hot")
	flags.DurationVar(&cfg.Duration, "duration", 2*time.Second, "how long one turn is")
	flags.DurationVar(&cfg.Warmup, "warmup", 500*time.Millisecond, "how long a client runs before its turn counts")
	patience := flags.Duration("patience", 5*time.Second, "how long an acquisition of hot may take before it is given up")
	engines := flags.Int("engines", 1, "how many of each client contend in hot, each with connections of its own; more than 1: with one goroutine each, unless --goroutines says otherwise")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return errors.Join(errUsage, err)
	}
	if !given(flags, "goroutines") && *engines > 1 {
		cfg.Goroutines = *engines
	}
	cfg.Scenario = flags.Arg(0)
	if flags.NArg() != 1 || !slices.Contains(scenarios, cfg.Scenario) {
		return errUsage
	}
	var chosen []subject
	var err error
	if cfg.Scenario != kinds {
		chosen, err = subjectsOf(cfg.Scenario, *clients)
	}
	switch {
	case err != nil:
		return errors.Join(errUsage, err)
	case cfg.Scenario == kinds && *clients != "":
		return fmt.Errorf("%w: kinds has no --clients", errUsage)
	case *format != "json" && *format != "text":
		return fmt.Errorf("%w: no format %q", errUsage, *format)
	case *rounds < 1:
		return fmt.Errorf("%w: --rounds must be positive", errUsage)
	case *engines < 1 || *engines > cfg.Goroutines || *engines > 1 && cfg.Scenario != bench.Hot:
		return fmt.Errorf("%w: --engines is for hot, and there is a goroutine for each at least", errUsage)
	case *patience <= 0 || *patience > mostPatience:
		return fmt.Errorf("%w: --patience must be positive, and at most %v", errUsage, mostPatience)
	}
	server, err := bench.OpenServer(ctx, *addr, false)
	if err != nil {
		return err
	}
	defer server.Close()
	if cfg.Scenario == kinds {
		return runKinds(ctx, server, cfg, *rounds, *format, out)
	}
	report, err := compare(ctx, server, chosen, cfg, *rounds, hotConfig{*patience, *engines})
	if err != nil {
		return err
	}
	print := report.writeText
	if *format == "json" {
		print = report.writeJSON
	}
	return errors.Join(print(out), report.err())
}

// given reports whether the command line has a flag.
func given(flags *flag.FlagSet, name string) (found bool) {
	flags.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

func runKinds(ctx context.Context, server *bench.Server, cfg bench.Config, rounds int, format string, out io.Writer) error {
	java, err := openRedisson(javaBuilt, server.URL())
	if err != nil {
		return err
	}
	report, err := compareKinds(ctx, server, java, cfg, rounds)
	if err = errors.Join(err, java.Close()); err != nil {
		return err
	}
	print := report.writeText
	if format == "json" {
		print = report.writeJSON
	}
	return errors.Join(print(out), report.err())
}

// javaBuilt is where Maven builds the program of Redisson, seen from here.
const javaBuilt = "redisson/target"
