package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/execlock"
	"github.com/pawl-lock/pawl/resp"
)

func newStatusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status NAME...",
		Short: "Show who holds a lock or a permit",
		Long: `status asks the server who holds a lock and how long its lease lasts. It changes
nothing. Its exit code is 0 whether the lock is free or held.

Of a read-write lock it shows who reads or writes, of a fair lock how many wait in its
queue, of a fenced lock its last fencing token, of a PermitSemaphore how many permits are
to be had and who has the others. What it cannot know: a fair lock for which nobody
waits looks like any other. A semaphore and a latch are both a count. A name that is
free may be that of a latch which is open, or of a semaphore that has no permits yet.

A holder whose id has a negative number is nobody: the lock was given up, and
--min-hold (or the option MinHold) keeps the lock taken for a while.

With --quiet it prints nothing, and the exit code is the answer: 0 if the lock is
held (of several: if one of them is; of permits: if one of them is taken), 1 if it is
free. Any other code comes with an error: the answer is not known, as for a count.
Without --quiet or --format json, those of several names that can be seen are printed beside it.

With --format json the answer is one object: name, kind (mutex, fenced, fair, read-write,
permits, count, or "" if there is nothing), locked (null for a count), mode, ttl_ms (null
if the key has no expiry, 0 if it is free) and holders, each with id and count. Some kinds
have more: queue, token, available, taken, count, and a holder of a permit its ttl_ms.
If this user may not see whether there is more, hidden says why; then the kind is not certain.
With several names it is an array of such objects, in the order of the names. With --format
jsonl it is one object a line, for any number of names. A name or an id that is not UTF-8 is
also there in base64, as name_base64 or id_base64.`,
		Example: `  pawl status nightly-report
  pawl status nightly-report --format json | jq .locked
  if pawl status --quiet nightly-report; then echo "it is still being made"; fi`,
		Args: someNames,
	}
	server := target.AddFlag(cmd)
	format := cmd.Flags().String("format", "text", "text, json or jsonl")
	quiet := cmd.Flags().BoolP("quiet", "q", false, "print nothing; exit code 0: held, 1: free")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		print, known := map[string]func(io.Writer, []*engine.LockInfo) error{"text": printText, "json": printJSON, "jsonl": printJSONLines}[*format]
		if !known {
			return exit.Usagef(cmd, "--format %q must be text, json or jsonl", *format)
		}
		if *quiet && cmd.Flags().Changed("format") {
			return exit.Usagef(cmd, "--quiet and --format cannot be combined")
		}
		seen, err := lookAt(cmd, server, args)
		switch {
		case *quiet && slices.ContainsFunc(seen, held):
			return nil
		case err != nil && (*quiet || *format == "json"):
			return err
		case *quiet:
			return quietly(seen)
		}
		return errors.Join(print(cmd.OutOrStdout(), seen), err)
	}
	return cmd
}

// lookAt looks at all names. It returns those that it could look at, and why it could not at others.
func lookAt(cmd *cobra.Command, server *target.Flag, names []string) (all []*engine.LockInfo, err error) {
	err = withServer(cmd, server, names, func(eng *engine.Engine) error {
		for _, name := range names {
			s, failed := eng.Inspect(cmd.Context(), name)
			switch {
			case errors.Is(failed, engine.ErrUnavailable):
				return failed
			case failed != nil:
				err = errors.Join(err, failed)
			default:
				all = append(all, s)
			}
		}
		return err
	})
	return all, err
}

// withServer connects to the servers of some names. It asks no other engine.
func withServer(cmd *cobra.Command, server *target.Flag, names []string, f func(*engine.Engine) error) error {
	cfg, err := server.Config()
	if err != nil {
		return err
	}
	cfg.Logger = newReports(func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), "pawl: "+format+"\n", args...) }, isTerminal(cmd.ErrOrStderr()))
	cfg.NoInspect = true
	eng, err := server.Connect(resp.ForNames(cmd.Context(), names...), cfg, target.Patience{})
	if err != nil {
		return err
	}
	defer eng.Close() // waits until all that it reports is said
	return f(eng)
}

// held reports whether anybody holds it: of permits, one of them.
func held(s *engine.LockInfo) bool { return len(s.Holders) > 0 }

// quietly answers with the exit code if nothing is held.
func quietly(seen []*engine.LockInfo) error {
	for _, s := range seen {
		switch {
		case s.Kind == "count" && s.Hidden != nil:
			return hiddenPermits(s)
		case s.Kind == "count":
			return &exit.Error{Code: exit.Server, Err: fmt.Errorf("%s is a count, of a semaphore or a latch: the server does not say whether anybody holds some of it", execlock.Shown(s.Name))}
		}
	}
	return &exit.Error{Code: exit.Failed}
}

// hiddenPermits is the error of a count that may be that of permits.
func hiddenPermits(s *engine.LockInfo) error {
	return &exit.Error{Code: exit.Server, Err: fmt.Errorf("%s is a count, and this user may not see whether permits are taken: %s; see the ACL rules in docs/operations.md", execlock.Shown(s.Name), execlock.Shown(s.Hidden.Error()))}
}
