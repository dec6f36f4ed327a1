package look

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/execlock"
	"github.com/pawl-lock/pawl/internal/lockjson"
)

func (t Terminal) deadlocks() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deadlocks",
		Short: "Find callers that wait for each other's locks",
		Long: `deadlocks asks all engines for waits whose callers hold other locks, and prints those that
wait for each other in a circle, over any number of processes. Pawl knows that a caller holds a lock
if the context of its Lock carries the hold (Do does that). It looks twice, and the server confirms
who holds the locks.

A possible deadlock is one of processes: each holds a lock that the next one waits for, and
nobody knows whether the same callers do. Busy processes that share several locks look like that
for a moment; look again. At most 10 of these are printed, after the others.

A deadlock ends by itself if one of its waits is bounded, by its context for example.

The exit code is 0 if there is none, or only possible ones, and 1 if one was found. On a terminal
it prints a text, elsewhere one JSON object for each deadlock, a line each; see --format.`,
		Example: `  pawl deadlocks`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exit.Usagef(cmd, "unexpected argument %q: the command takes only flags", args[0])
			}
			return nil
		},
	}
	t.runE(cmd, func(cmd *cobra.Command, eng *engine.Engine, _ []string, text bool) error {
		cycles, err := eng.Deadlocks(cmd.Context())
		for _, c := range cycles {
			if text {
				_, _ = io.WriteString(cmd.OutOrStdout(), cycleText(c, time.Now()))
			} else if err := printJSON(cmd.OutOrStdout(), lockjson.Cycle{Possible: c.Possible, Waits: lockjson.Uses(c.Waits, lockjson.Plain)}); err != nil {
				return err
			}
		}
		switch {
		case err != nil:
			return err
		case len(cycles) > 0 && !cycles[0].Possible: // those come last
			return &exit.Error{Code: exit.Failed}
		case text && len(cycles) == 0:
			fmt.Fprintln(cmd.OutOrStdout(), "no deadlock found")
		}
		return nil
	})
	return cmd
}

// cycleText is what people read of a deadlock.
func cycleText(c engine.Cycle, now time.Time) string {
	var b strings.Builder
	what := "deadlock"
	if c.Possible {
		what = "possible deadlock"
	}
	fmt.Fprintf(&b, "%s of %d:\n", what, len(c.Waits))
	for i, u := range c.Waits {
		next := c.Waits[(i+1)%len(c.Waits)]
		fmt.Fprintf(&b, "  %s\n    waits for %s %s\n    held by %s\n", who(u.Engine), execlock.Shown(u.Name), useText(u, now), who(next.Engine))
	}
	return b.String()
}
