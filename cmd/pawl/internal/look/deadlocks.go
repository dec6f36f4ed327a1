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
)

func (t Terminal) deadlocks() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deadlocks",
		Short: "Find callers that wait for each other's locks",
		Long: `deadlocks asks all engines for waits whose callers hold other locks, and prints those that
wait for each other in a circle, over any number of processes. Pawl knows that a caller holds a lock
if the context of its Lock carries the hold (Do does that); other deadlocks are not found. It looks
twice, and the server confirms who holds the locks.

A deadlock ends by itself if one of its waits is bounded, by its context for example.

The exit code is 0 if there is none, and 1 if one was found. On a terminal it prints a text,
elsewhere one JSON object for each deadlock, a line each; see --format.`,
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
			} else if err := printJSON(cmd.OutOrStdout(), cycleJSON{Waits: uses(c, true)}); err != nil {
				return err
			}
		}
		switch {
		case err != nil:
			return err
		case len(cycles) > 0:
			return &exit.Error{Code: exit.Failed}
		case text:
			fmt.Fprintln(cmd.OutOrStdout(), "no deadlock found")
		}
		return nil
	})
	return cmd
}

// cycleJSON is what scripts get of a deadlock.
type cycleJSON struct {
	Waits []useJSON `json:"waits"` // each is for a lock that the next one's caller holds
}

// cycleText is what people read of a deadlock.
func cycleText(c engine.Cycle, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "deadlock of %d:\n", len(c))
	for i, u := range c {
		next := c[(i+1)%len(c)]
		fmt.Fprintf(&b, "  %s\n    waits for %s %s\n    held by %s\n", who(u.Engine), execlock.Shown(u.Name), useText(u, now), who(next.Engine))
	}
	return b.String()
}
