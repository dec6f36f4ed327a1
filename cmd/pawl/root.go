package main

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/look"
	"github.com/pawl-lock/pawl/internal/execlock"
)

// run executes one command line and returns the process's exit code.
func run(args []string) int {
	root := newRootCommand()
	root.SetArgs(args)
	err := root.Execute()
	if text := exit.Text(err); text != "" {
		fmt.Fprintln(root.ErrOrStderr(), "pawl:", text)
	}
	if s := exit.DeathSignal(err); s != 0 {
		execlock.Die(s)
	}
	return exit.Code(err)
}

func newRootCommand() *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use:   "pawl",
		Short: "Distributed locks on Redis and Valkey",
		Long: `pawl takes distributed locks on a Redis or Valkey server. They are Redisson's
locks: pawl and a Java service that uses an RLock of the same name exclude each other.

pawl connects to the server that --addr names, else $PAWL_URL, else to
redis://127.0.0.1:6379. A URL may also name a cluster (redis+cluster://HOST,HOST),
sentinels (redis+sentinel://HOST,HOST/MASTER) or a primary with its replicas
(redis+replicas://HOST,HOST). With rediss instead of redis the connections use TLS.
Put a password into $PAWL_URL, $PAWL_PASSWORD or a file that --password-file names. On the
command line every user of the machine could read it, so pawl refuses it there.

Exit codes: 0 done, 1 failed, 64 wrong usage, 69 server cannot be reached or refuses,
75 lock not acquired, 76 lock lost.`,
		Example: `  pawl demo
  pawl exec nightly-report -- /usr/local/bin/report --all
  PAWL_URL=rediss://redis.example:6380 pawl status nightly-report`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 0:
				return exit.Usagef(cmd, "there is no command %q", args[0])
			case version:
				return showVersion(cmd.OutOrStdout())
			}
			return cmd.Help()
		},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.Flags().BoolVar(&version, "version", false, "show the version")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return flagError(cmd, err, "") })
	root.AddCommand(
		newBenchCommand(),
		newBenchProcessCommand(),
		newDemoCommand(),
		newDemoWorkerCommand(),
		newExecCommand(),
		newPingCommand(),
		newServeCommand(),
		newStatusCommand(),
		newUnlockCommand(),
		newVersionCommand(),
		newWebCommand(),
	)
	root.AddCommand(look.Commands(look.Terminal{Is: isTerminal, Logger: func(cmd *cobra.Command) *slog.Logger {
		return newReports(func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), "pawl: "+format+"\n", args...) }, isTerminal(cmd.ErrOrStderr()))
	}})...)
	addCompletion(root)
	return root
}

// oneName is the Args of commands that take the name of a lock.
func oneName(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0 || args[0] == "":
		return exit.Usagef(cmd, "the name of the lock is missing")
	case len(args) > 1:
		return exit.Usagef(cmd, "unexpected argument %q: give one name (quote a name that has spaces)", args[1])
	}
	return nil
}

// someNames is the Args of commands that take the names of locks.
func someNames(cmd *cobra.Command, args []string) error {
	if len(args) == 0 || slices.Contains(args, "") {
		return exit.Usagef(cmd, "the name of the lock is missing")
	}
	return nil
}

// noArgs is the Args of commands that take none.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return exit.Usagef(cmd, "unexpected argument %q: the command takes only flags", args[0])
	}
	return nil
}
