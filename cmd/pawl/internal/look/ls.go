package look

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/execlock"
)

func (t Terminal) ls() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls [PATTERN]",
		Short: "List the locks that are held, with holder and waiters",
		Long: `ls lists the locks that are held and whose names match the pattern: * is any text, ? one
byte, [a-z] one of some, and a backslash takes the next byte as it is. Without a pattern it lists all.

It asks the servers in small steps (SCAN), and the engines once; see "pawl help inspect". An
engine tells of the 100 locks that it has held longest. Of the others there is the id of the
holder, and no since. Semaphores, permits and latches are not listed: their keys are plain
numbers, as counters of other programs are. "pawl inspect NAME" shows one.

On a terminal it prints text: a table, with the beginning of long names. Elsewhere it prints one
JSON object a line; see --format. A ? under HELD FOR means that no engine says since when.`,
		Example: `  pawl ls
  pawl ls 'orders:*' --format jsonl | jq -r .name`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return exit.Usagef(cmd, "unexpected argument %q: give one pattern, in quotes", args[1])
			}
			return nil
		},
	}
	t.runE(cmd, func(cmd *cobra.Command, eng *engine.Engine, args []string, text bool) error {
		return list(cmd, eng, patternOf(args), text)
	})
	return cmd
}

func patternOf(args []string) string {
	if len(args) == 0 {
		return "*"
	}
	return args[0]
}

// rowsAtOnce is how many rows have their columns in line with each other.
const rowsAtOnce = 200

// list prints as it finds.
func list(cmd *cobra.Command, eng *engine.Engine, pattern string, text bool) error {
	w := bufio.NewWriter(cmd.OutOrStdout())
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	n, warned := 0, false
	for info, err := range eng.List(cmd.Context(), pattern) {
		if err != nil {
			_ = table.Flush()
			_ = w.Flush()
			return err
		}
		if !warned && (info.NotAsked != nil || info.Silent > 0) {
			warned = true
			fmt.Fprintln(cmd.ErrOrStderr(), "pawl:", missing(info))
		}
		if !text {
			if err := printJSON(w, jsonOf(info)); err != nil {
				return err
			}
			continue
		}
		if n == 0 {
			fmt.Fprintln(table, header)
		}
		if n++; n%rowsAtOnce == 0 {
			if err := table.Flush(); err != nil {
				return err
			}
		}
		printRow(table, rowOf(info, time.Now()))
	}
	return cmp.Or(table.Flush(), w.Flush())
}

// missing is why a list has less than it could.
func missing(i *engine.LockInfo) string {
	if i.NotAsked != nil {
		return "no engine could be asked, so who waits is not known: " + execlock.Shown(i.NotAsked.Error())
	}
	return fmt.Sprintf("%d engines listen and did not answer in time", i.Silent)
}

const header = "KIND\tNAME\tHOLDER\tHELD FOR\tLEASE\tWAITING"

// row is a lock in a table.
type row struct{ kind, name, holder, held, lease, waiting string }

func rowOf(i *engine.LockInfo, now time.Time) row {
	r := row{kind: i.Kind, name: cell(execlock.Shown(i.Name)), held: "?", lease: "none", waiting: "-"}
	if r.kind == "" {
		r.kind = "-"
	}
	if i.TTL >= 0 {
		r.lease = brief(i.TTL.Truncate(time.Second))
	}
	if i.Waiting > 0 {
		r.waiting = fmt.Sprint(i.Waiting)
	}
	if len(i.Holders) == 0 {
		r.holder, r.held, r.lease = "nobody", "-", "-"
		return r
	}
	h := i.Holders[0]
	r.holder = cell(short(h))
	if more := len(i.Holders) - 1; more > 0 {
		r.holder += fmt.Sprintf(" and %d more", more)
	}
	if since := earliest(h.Uses); !since.IsZero() {
		r.held = ago(since, now)
	}
	return r
}

// cell is the beginning of a text: all rows of a table are as wide as the widest, and a name may have 64 KiB.
func cell(text string) string {
	const most = 200
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

// earliest is when the first of some holds began.
func earliest(all []engine.Use) (since time.Time) {
	for _, u := range all {
		if since.IsZero() || u.Since.Before(since) {
			since = u.Since
		}
	}
	return since
}

// short names a holder in a table.
func short(h engine.HolderInfo) string {
	if e := h.Engine; e != nil && e.Answered {
		text := fmt.Sprintf("%s@%s/%d", quoted(e.Service), quoted(e.Host), e.PID)
		if e.Contested {
			text += " (contested)"
		}
		return text
	}
	return execlock.Shown(h.ID)
}

func printRow(w io.Writer, r row) {
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.kind, r.name, r.holder, r.held, r.lease, r.waiting)
}
