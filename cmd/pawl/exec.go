package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/execlock"
)

// execFlags are the flags of exec.
type execFlags struct {
	server                        *serverFlag
	wait, lease, maxHold, minHold time.Duration
	onLost                        string
	grace                         time.Duration
	conflictCode                  int
}

func newExecCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec NAME [flags] -- COMMAND [ARG...]",
		Short: "Run a command while a lock is held",
		Long: `exec waits for the lock NAME, runs the command, and releases the lock when the
command has ended. Meanwhile the lock is renewed: it lasts as long as the command
takes, and if this machine dies it ends with its lease (30s, or ?lease= in the URL).

The command finds the lock's name in $PAWL_LOCK_NAME. It runs in a process group of
its own, to which SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed
on. If the lock is lost (the server was away for too long, somebody removed the
lock), the group gets SIGTERM, and SIGKILL after --grace. If pawl itself is killed
the command is killed too (on Linux), but not what the command has started.

Exit codes: the command's own, 128+n if signal n ended it; 64 wrong usage, 69 server
not reachable or not willing, 75 lock not acquired (--conflict-exit-code), 76 lock
lost, 126 command not executable, 127 command not found.`,
		Example: `  # one of many machines makes the report; those that come second do nothing
  pawl exec nightly-report --wait 0 --min-hold 5s --conflict-exit-code 0 -- report --all

  # wait for at most a minute, stop after at most an hour
  pawl exec deploy --wait 1m --max-hold 1h -- ./deploy.sh production

  # a shell command
  pawl exec backup -- sh -c 'dump | upload'`,
	}
	f := &execFlags{server: addServerFlag(cmd)}
	flags := cmd.Flags()
	flags.DurationVar(&f.wait, "wait", 0, "wait for the lock at most that `long`; 0s: try once (default as long as it takes)")
	flags.DurationVar(&f.lease, "lease", 0, "hold the lock for a fixed `time`, not renewed")
	flags.DurationVar(&f.maxHold, "max-hold", 0, "renew the lock for at most that `long`; then it is lost")
	flags.DurationVar(&f.minHold, "min-hold", 0, "keep others out for at least that `long`, even if the command ends sooner")
	flags.StringVar(&f.onLost, "on-lost", "term", "when the lock is lost: term ends the command, ignore lets it go on")
	flags.DurationVar(&f.grace, "grace", 10*time.Second, "`time` from SIGTERM to SIGKILL when the lock is lost")
	flags.IntVar(&f.conflictCode, "conflict-exit-code", exitNotAcquired, "exit `code` if the lock was not acquired; with 0 nothing is printed")
	cmd.Args = commandAfterName
	cmd.RunE = f.run
	return cmd
}

// commandAfterName is the Args of exec: one name, two dashes, a command.
func commandAfterName(cmd *cobra.Command, args []string) error {
	switch dash := cmd.ArgsLenAtDash(); {
	case len(args) == 0 || args[0] == "" || dash == 0:
		return usagef(cmd, "the name of the lock is missing")
	case dash < 0 && len(args) == 1, dash == len(args):
		return usagef(cmd, "the command is missing: write it after two dashes, as in pawl exec %s -- command", args[0])
	case dash != 1:
		return usagef(cmd, "%q is too much: write the command after the name and two dashes, as in pawl exec %s -- command", args[1], args[0])
	}
	return nil
}

func (f *execFlags) check(cmd *cobra.Command) error {
	switch {
	case f.onLost != "term" && f.onLost != "ignore":
		return usagef(cmd, "--on-lost %q must be term or ignore", f.onLost)
	case f.wait < 0:
		return usagef(cmd, "--wait %v must not be negative: leave it out to wait as long as it takes", f.wait)
	case f.grace < 0:
		return usagef(cmd, "--grace %v must not be negative", f.grace)
	case f.conflictCode < 0 || f.conflictCode > 255:
		return usagef(cmd, "--conflict-exit-code %d must be within 0 and 255", f.conflictCode)
	case cmd.Flags().Changed("lease") && f.lease <= 0:
		return usagef(cmd, "--lease %v must be positive", f.lease)
	case cmd.Flags().Changed("max-hold") && f.maxHold <= 0:
		return usagef(cmd, "--max-hold %v must be positive", f.maxHold)
	case cmd.Flags().Changed("min-hold") && f.minHold <= 0:
		return usagef(cmd, "--min-hold %v must be positive", f.minHold)
	case cmd.Flags().Changed("lease") && cmd.Flags().Changed("max-hold"):
		return usagef(cmd, "--lease and --max-hold exclude each other: a fixed lease is its own maximum")
	}
	return nil
}

// config translates for execlock.
func (f *execFlags) config(cmd *cobra.Command, args []string) execlock.Config {
	cfg := execlock.Config{
		Name: args[0], Wait: -1, KeepRunning: f.onLost == "ignore", Grace: f.grace, Command: args[1:],
		Warn: func(format string, args ...any) {
			fmt.Fprintf(cmd.ErrOrStderr(), "pawl: "+format+"\n", args...)
		},
	}
	if cmd.Flags().Changed("wait") {
		cfg.Wait = f.wait
	}
	for name, option := range map[string]engine.Option{
		"lease": engine.Lease(f.lease), "max-hold": engine.MaxHold(f.maxHold), "min-hold": engine.MinHold(f.minHold),
	} {
		if cmd.Flags().Changed(name) {
			cfg.Options = append(cfg.Options, option)
		}
	}
	return cfg
}

func (f *execFlags) run(cmd *cobra.Command, args []string) error {
	if err := f.check(cmd); err != nil {
		return err
	}
	cfg := f.config(cmd, args)
	if _, err := exec.LookPath(cfg.Command[0]); err != nil {
		return &exitError{startCode(err), fmt.Errorf("cannot run the command: %w", err)}
	}
	eng, err := f.server.open(cmd.Context())
	if err != nil {
		return err
	}
	defer eng.Close()
	signals := catchPassedOn()
	defer signal.Stop(signals)
	cfg.Signals = signals
	code, err := execlock.Run(cmd.Context(), eng, cfg)
	var signalled *execlock.SignalError
	switch {
	case errors.As(err, &signalled):
		return &signalError{signalled.Signal}
	case errors.Is(err, execlock.ErrStart):
		return &exitError{startCode(err), err}
	case errors.Is(err, engine.ErrLost):
		return &exitError{exitLost, fmt.Errorf("%w; the command ended with code %d", err, code)}
	case exitCode(err) == exitNotAcquired && f.conflictCode == 0:
		return nil // as expected, and cron mails whatever is printed
	case exitCode(err) == exitNotAcquired:
		return &exitError{f.conflictCode, err}
	case err != nil:
		return err
	case code != 0:
		return &exitError{code: code}
	}
	return nil
}

// startCode is what shells answer if a command cannot be run.
func startCode(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return exitNotFound
	}
	return exitNotExecutable
}
