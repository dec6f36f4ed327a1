// Package look has the commands that show who holds locks and who waits: inspect, ls, deadlocks and watch. What
// engines say of themselves is shown as a quoted text, whatever it is.
package look

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/execlock"
	"github.com/pawl-lock/pawl/internal/lockjson"
)

// Terminal is what the commands need to know of their output.
type Terminal struct {
	Is     func(io.Writer) bool
	Logger func(*cobra.Command) *slog.Logger
}

// Commands are all of them.
func Commands(t Terminal) []*cobra.Command {
	return []*cobra.Command{t.inspect(), t.ls(), t.watch(), t.deadlocks()}
}

// Formats are the values of --format.
var Formats = []string{"text", "jsonl"}

// output is how the results of a command are printed.
type output struct {
	format *string
	term   Terminal
}

func (t Terminal) addOutput(cmd *cobra.Command) output {
	return output{cmd.Flags().String("format", "", "text or jsonl (default: text on a terminal, jsonl elsewhere)"), t}
}

// text reports whether people read the output.
func (o output) text(cmd *cobra.Command) (bool, error) {
	switch *o.format {
	case "":
		return o.term.Is(cmd.OutOrStdout()), nil
	case "text":
		return true, nil
	case "jsonl":
		return false, nil
	}
	return false, exit.Usagef(cmd, "--format %q must be text or jsonl", *o.format)
}

// runE has a command run with an engine that asks, and whether it prints texts.
func (t Terminal) runE(cmd *cobra.Command, run func(cmd *cobra.Command, eng *engine.Engine, args []string, text bool) error) {
	server, out := target.AddFlag(cmd), t.addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		text, err := out.text(cmd)
		if err != nil {
			return err
		}
		eng, err := t.connect(cmd, server)
		if err != nil {
			return err
		}
		defer eng.Close()
		return run(cmd, eng, args, text)
	}
}

// connect is the engine that asks.
func (t Terminal) connect(cmd *cobra.Command, server *target.Flag) (*engine.Engine, error) {
	cfg, err := server.Config()
	if err != nil {
		return nil, err
	}
	cfg.Logger = t.Logger(cmd)
	return server.Connect(cmd.Context(), cfg, target.Patience{})
}

// quoted is what somebody else claims.
func quoted(text string) string { return strconv.Quote(text) }

// ago is how long something has lasted, as people read it.
func ago(since, now time.Time) string { return brief(max(now.Sub(since), 0)) }

// brief has as many digits as matter.
func brief(d time.Duration) string {
	switch {
	case d >= time.Hour:
		return d.Round(time.Minute).String()
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}

// who names an engine.
func who(e *engine.EngineInfo) string {
	switch {
	case e == nil:
		return "somebody whose id does not say who"
	case e.Answered:
		text := fmt.Sprintf("%s on %s, pid %d", quoted(cmp.Or(e.Service, "?")), quoted(cmp.Or(e.Host, "?")), e.PID)
		for _, k := range slices.Sorted(maps.Keys(e.Labels)) {
			text += ", " + quoted(k+"="+e.Labels[k])
		}
		if e.Contested {
			text += " (contested: another answer came in this engine's name)"
		}
		return text
	case e.Addr != "":
		return "a client at " + quoted(e.Addr) + " that does not answer: it hangs, or does not listen for questions"
	case e.Hidden == nil:
		return "no client of that id is connected: it has ended or is cut off, or it is no engine of Pawl; host, pid and since when cannot be known"
	}
	return "it does not answer, and the server does not show its connections (CLIENT LIST): " + execlock.Shown(e.Hidden.Error()) + "; host, pid and since when cannot be known"
}

// printJSON prints a value on a line.
func printJSON(w io.Writer, v any) error {
	line, err := lockjson.Line(v)
	if err == nil {
		_, err = w.Write(line)
	}
	return err
}

// jsonOf is what programs get of a lock.
func jsonOf(i *engine.LockInfo) lockjson.Lock { return lockjson.Of(i, lockjson.Plain) }
