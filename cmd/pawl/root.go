package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// run executes one command line and returns the process's exit code.
func run(args []string) int {
	root := newRootCommand()
	root.SetArgs(args)
	err := root.Execute()
	if text := errorText(err); text != "" {
		fmt.Fprintln(root.ErrOrStderr(), "pawl:", text)
	}
	return exitCode(err)
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "pawl",
		Short: "Distributed locks on Redis and Valkey",
		Long: `pawl takes distributed locks on a Redis or Valkey server. They are Redisson's
locks: a Java service that uses an RLock of the same name is excluded too.

The server is named by --addr, else by $PAWL_URL, else it is
redis://127.0.0.1:6379. So are clusters (redis+cluster://HOST,HOST), sentinels
(redis+sentinel://HOST,HOST/MASTER) and replicas (redis+replicas://HOST,HOST), and
with rediss all of them over TLS. A password belongs into $PAWL_URL or $PAWL_PASSWORD: one
on the command line is refused, because every user of the machine can read it.

Exit codes: 0 done, 1 failed, 64 wrong usage, 69 server not reachable or not
willing, 75 lock not acquired, 76 lock lost.`,
		Example: `  pawl demo
  pawl exec nightly-report -- /usr/local/bin/report --all
  PAWL_URL=rediss://redis.example:6380 pawl status nightly-report`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef(cmd, "there is no command %q", args[0])
			}
			return cmd.Help()
		},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usagef(cmd, "%v", err) })
	root.AddCommand(
		newBenchCommand(),
		newDemoCommand(),
		newDemoWorkerCommand(),
		newExecCommand(),
		newPingCommand(),
		newServeCommand(),
		newStatusCommand(),
		newUnlockCommand(),
		newVersionCommand(),
	)
	return root
}

// oneName is the Args of commands that take the name of a lock.
func oneName(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0 || args[0] == "":
		return usagef(cmd, "the name of the lock is missing")
	case len(args) > 1:
		return usagef(cmd, "one name is enough: %q is too much (put a name with spaces into quotes)", args[1])
	}
	return nil
}

// noArgs is the Args of commands that take none.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef(cmd, "%q is too much: the command takes flags only", args[0])
	}
	return nil
}
