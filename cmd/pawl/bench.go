package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/bench"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/redistest"
)

func newBenchCommand() *cobra.Command {
	cfg := bench.DefaultConfig("")
	cmd := &cobra.Command{
		Use:   "bench SCENARIO",
		Short: "Measure Pawl on a server",
		Long: `bench measures one of these scenarios and prints the figures:

  single       one goroutine locks and unlocks one name
  uncontended  --goroutines with a name of their own each
  hot          --goroutines that contend for one name, and hand it over to each other;
               with --processes as many processes do, one goroutine each by default
  waiters      --count pending futures on --names names that are held:
               memory, goroutines and idle CPU; then all are served, cancelled
               or abandoned (--finish)
  held         --count holds under the watchdog for --duration: none may be lost

Without --addr it starts a redis-server of its own and reaches it over TCP, whatever
$` + target.URLEnv + ` says: a benchmark should not load the server of a service. With --embedded
it measures on a server inside this process; such figures cannot be compared with
others.

On a server of yours it uses names that begin with pawl-bench: and checks at the end
that none is left. The exit code is 1 if something was left over, lost, stuck or failed.`,
		Example: `  pawl bench uncontended --goroutines 64
  pawl bench hot --processes 50
  pawl bench waiters --count 100000 --own-names --finish cancel
  pawl bench held --count 100000 --duration 60s --format json
  pawl bench hot --addr redis://10.0.0.7:6379 --profile /tmp/profiles`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return exit.Usagef(cmd, "one scenario is needed: %s", strings.Join(bench.Scenarios, ", "))
			}
			return nil
		},
	}
	server := target.AddFlag(cmd)
	flags := cmd.Flags()
	flags.Lookup("addr").Usage = "`URL` of the server, without a password (default: a redis-server of its own)"
	flags.BoolVar(&cfg.Embedded, "embedded", false, "measure on a server inside this process")
	flags.IntVar(&cfg.Goroutines, "goroutines", cfg.Goroutines, "number of workers (uncontended, hot; 1 in each of --processes)")
	flags.IntVar(&cfg.Processes, "processes", 0, "number of processes that contend, each with connections of its own (hot; default: this process alone)")
	flags.IntVar(&cfg.Count, "count", cfg.Count, "number of futures (waiters) or holds (held)")
	flags.IntVar(&cfg.Names, "names", cfg.Names, "number of names that the futures of waiters wait for")
	ownNames := flags.Bool("own-names", false, "one name for each future of waiters: --names equals --count")
	flags.DurationVar(&cfg.Duration, "duration", cfg.Duration, "how long to measure (waiters: to idle, held: to hold; default 5s; held: until all are renewed)")
	flags.DurationVar(&cfg.Warmup, "warmup", cfg.Warmup, "how long to run before measuring (single, uncontended, hot)")
	flags.DurationVar(&cfg.Lease, "lease", 0, "lease of a hold under the watchdog (default 30s)")
	flags.StringVar(&cfg.Finish, "finish", cfg.Finish, "how the futures of waiters end: serve, cancel or abandon")
	flags.StringVar(&cfg.Profile, "profile", "", "write profiles and a trace of the run into `DIR`")
	format := flags.String("format", "text", "text or json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg.Scenario = args[0]
		if *format != "text" && *format != "json" {
			return exit.Usagef(cmd, "--format %q must be text or json", *format)
		}
		if flags.Changed("processes") {
			if cfg.Processes < 1 {
				return exit.Usagef(cmd, "--processes must be at least 1")
			}
			if !flags.Changed("goroutines") {
				cfg.Goroutines = 1
			}
			cfg.Process = func(ctx context.Context, number int, url string) *exec.Cmd {
				return benchProcessCommand(ctx, number, url, server, cfg.Profile)
			}
		}
		if *ownNames {
			cfg.Names = cfg.Count
		}
		if server.Given() {
			if _, err := server.Config(); err != nil {
				return err
			}
			cfg.URL, cfg.Parse = server.URL(), server.Parse
		} else if server.Access.Given() {
			return exit.Usagef(cmd, "the server that bench starts has no TLS and no password: name another one with --addr")
		}
		return runBench(cmd, server, cfg, *format)
	}
	return cmd
}

func runBench(cmd *cobra.Command, server *target.Flag, cfg bench.Config, format string) error {
	ctx, stop := exit.UntilSignal(cmd.Context())
	defer stop()
	bar := newBenchBar(cmd.ErrOrStderr())
	cfg.Progress = bar.show
	result, err := bench.Run(ctx, cfg)
	bar.clear()
	if err != nil {
		return benchError(ctx, cmd, server, err)
	}
	print := result.WriteText
	if format == "json" {
		print = result.WriteJSON
	}
	return errors.Join(print(cmd.OutOrStdout()), result.Err())
}

// benchError says what to do about a run that could not be made.
func benchError(ctx context.Context, cmd *cobra.Command, server *target.Flag, err error) error {
	var process *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx) // the signal
	case errors.Is(err, bench.ErrInvalid):
		return exit.Usagef(cmd, "%v", err)
	case errors.As(err, &process) && process.ExitCode() == exit.Server:
		return &exit.Error{Code: exit.Server, Err: err}
	case errors.Is(err, redistest.ErrNotInstalled):
		return fmt.Errorf("%w; or name a server with --addr, or try --embedded, whose figures cannot be compared with others", err)
	case errors.Is(err, engine.ErrUnavailable):
		return fmt.Errorf("%w; %s", err, server.WayOut(err))
	}
	return err
}
