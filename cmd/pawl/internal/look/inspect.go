package look

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/execlock"
)

func (t Terminal) inspect() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect NAME...",
		Short: "Show who holds a lock, who waits for it, and since when",
		Long: `inspect asks the server what it knows of a name, and all engines of Pawl that use
locks who they are: host, process, service, since when they hold the lock, how often it was
renewed, and who waits for how long. It changes nothing, and takes a fifth of a second at most
beside the round trips to the server.

An engine that hangs does not answer. The server then tells where it is connected from, if
this user may see that (CLIENT LIST). A process that has ended, or Redisson, is known by its
id only. What an engine says of itself is shown in quotes: any client that may publish to the
channel of questions can say it.

On a terminal it prints a text, elsewhere one JSON object a line; see --format.`,
		Example: `  pawl inspect orders:42
  pawl inspect orders:42 --format jsonl | jq '.holders[].engine.host'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || slices.Contains(args, "") {
				return exit.Usagef(cmd, "the name of the lock is missing")
			}
			return nil
		},
	}
	t.runE(cmd, func(cmd *cobra.Command, eng *engine.Engine, names []string, text bool) error {
		for _, name := range names {
			info, err := eng.Inspect(cmd.Context(), name)
			switch {
			case err != nil:
			case text:
				_, err = io.WriteString(cmd.OutOrStdout(), textOf(info, time.Now()))
			default:
				err = printJSON(cmd.OutOrStdout(), jsonOf(info))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return cmd
}

// mostLines bounds the waiters of one engine that are shown.
const mostLines = 10

// textOf is what people read of a lock.
func textOf(i *engine.LockInfo, now time.Time) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("%s: %s", execlock.Shown(i.Name), heading(i))
	for _, h := range i.Holders {
		line("  %s %s%s", noun(i.Kind), execlock.Shown(h.ID), counts(i, h))
		if isNobody(h.ID) {
			line("    nobody: the lock was given up, and MinHold keeps it taken")
			continue
		}
		for _, e := range claimants(i, h.Engine) {
			line("    %s", who(e))
			for _, u := range h.Uses {
				if u.Engine == e {
					line("    %s", useText(u, now))
				}
			}
		}
	}
	for _, u := range i.Unconfirmed {
		line("  claimed by %s, but not on the server: %s", who(u.Engine), useText(u, now))
	}
	if i.Waiting > 0 {
		line("  waiting: %d", i.Waiting)
	}
	shown := make(map[*engine.EngineInfo]int)
	for _, u := range i.Waiters {
		if shown[u.Engine]++; shown[u.Engine] > mostLines {
			continue
		}
		line("    %s: %s", who(u.Engine), useText(u, now))
	}
	for _, e := range i.Engines {
		if more := shown[e] - mostLines; more > 0 {
			line("    %s: %d more", who(e), more)
		}
	}
	if i.Queue > 0 {
		line("  in the queue of the fair lock: %d", i.Queue)
	}
	if i.Token != 0 {
		line("  the last fencing token is %d", i.Token)
	}
	for _, unknown := range unknowns(i) {
		line("  not known: %s", unknown)
	}
	return b.String()
}

// heading says what the name is.
func heading(i *engine.LockInfo) string {
	lease := "without a lease: it never ends by itself"
	if i.TTL >= 0 {
		lease = "its lease ends in " + brief(i.TTL) + " unless renewed"
	}
	switch {
	case i.Kind == "count":
		return fmt.Sprintf("a count of %d: free permits of a semaphore, or what a latch waits for", i.Count)
	case i.Kind == "permits":
		return fmt.Sprintf("a semaphore, free permits: %d, taken: %d", i.Available, len(i.Holders))
	case i.Locked:
		return fmt.Sprintf("%s, locked (%s), %s", i.Kind, execlock.Shown(i.Mode), lease)
	}
	return "free"
}

func noun(kind string) string {
	if kind == "permits" {
		return "permit"
	}
	return "holder"
}

func counts(i *engine.LockInfo, h engine.HolderInfo) string {
	switch {
	case i.Kind == "permits" && h.TTL >= 0:
		return ", its lease ends in " + brief(h.TTL) + " unless renewed"
	case i.Kind == "permits":
		return ", without a lease"
	case h.Count > 1:
		return fmt.Sprintf(", count %d", h.Count)
	}
	return ""
}

// claimants are those that answered in the name of an engine: that engine, unless somebody lies.
func claimants(i *engine.LockInfo, e *engine.EngineInfo) []*engine.EngineInfo {
	if e == nil || !e.Contested {
		return []*engine.EngineInfo{e}
	}
	return slices.DeleteFunc(slices.Clone(i.Engines), func(other *engine.EngineInfo) bool { return other.ID != e.ID })
}

// isNobody reports whether an owner is one that MinHold leaves.
func isNobody(id string) bool { return strings.Contains(id, ":-") }

// useText is a hold or a wait.
func useText(u engine.Use, now time.Time) string {
	text := fmt.Sprintf("%s, for %s (since %s)", quoted(u.Kind), ago(u.Since, now), u.Since.Local().Format("2006-01-02 15:04:05"))
	if u.Renewals > 0 {
		text += fmt.Sprintf(", renewed %d times", u.Renewals)
	}
	if u.Depth > 1 {
		text += fmt.Sprintf(", held %d times", u.Depth)
	}
	if u.Site != "" {
		text += ", at " + quoted(u.Site)
	}
	if len(u.Under) > 0 {
		text += fmt.Sprintf(", while it holds %q", u.Under)
	}
	return text
}

// unknowns are what nobody could tell.
func unknowns(i *engine.LockInfo) (all []string) {
	switch {
	case i.NotAsked != nil:
		all = append(all, "who waits, as no engine could be asked: "+execlock.Shown(i.NotAsked.Error()))
	case i.Silent == 1:
		all = append(all, "whether one more engine waits, which listens and does not answer")
	case i.Silent > 1:
		all = append(all, fmt.Sprintf("whether %d more engines wait, which listen and do not answer", i.Silent))
	}
	if i.Hidden != nil {
		all = append(all, "whether the name has more, which this user may not see: "+execlock.Shown(i.Hidden.Error()))
	}
	return all
}
