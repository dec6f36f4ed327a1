package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// WriteJSON writes the result as one indented JSON object.
func (r *Result) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WriteText writes the result for people.
func (r *Result) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	line("scenario", "%s, %s on %s", r.Scenario, r.Client, r.Server)
	if !r.Comparable {
		line("", "not a Redis or Valkey of its own: these figures cannot be compared with others")
	}
	if r.SharedServer {
		line("", "somebody else uses the server: commands are not told, and the figures may have suffered")
	}
	c := r.Conditions
	line("on", "%s/%s, %s%d CPUs, GOMAXPROCS %d, %s", c.OS, c.Arch, c.cpu(), c.CPUs, c.GOMAXPROCS, c.Go)
	line("with", "lease %gs, warm-up %gs, %s%s", c.LeaseS, c.WarmupS, c.version(), c.Date.Format(time.DateTime))
	r.load(line)
	line("pairs", "%d in %.2f s: %.0f a second", r.Pairs, r.DurationS, r.PairsPerSecond)
	if r.ProcessesResult == nil {
		line("latency", "%s", r.LatencyUs)
	} else {
		r.between(line)
	}
	line("per pair", "%.2f us of client CPU, %.2f allocations, %s commands", r.ClientCPUUsPerPair, r.AllocsPerPair, known(r.CommandsPerPair))
	if r.ProcessesResult == nil {
		if r.Fairness.Max > 0 {
			line("fairness", "%d to %d pairs per goroutine, mean %.1f", r.Fairness.Min, r.Fairness.Max, r.Fairness.Mean)
		}
		line("goroutines", "at most %d beside the idle client and the workers", r.GoroutinesPeak)
	}
	line("errors", "%d", r.Errors)
	if r.FirstError != "" {
		line("", "%s", r.FirstError)
	}
	line("stuck", "%d", r.Stuck)
	left := fmt.Sprintf("%d keys, %d channels", r.Leftovers.Keys, r.Leftovers.Channels)
	if r.Leftovers.Unknown != "" {
		left = "not known: " + r.Leftovers.Unknown
	}
	line("left over", "%s", left)
	line("used", "at most %d MB of memory%s; the server %.0f %% of a CPU", c.RSSBytes>>20, r.ofProcesses(), c.ServerCPUPercent)
	return t.Flush()
}

func (l Latency) String() string {
	return fmt.Sprintf("p50 %s, p99 %s, p99.9 %s, max %s", micros(l.P50), micros(l.P99), micros(l.P999), micros(l.Max))
}

// between describes how the lock went from process to process.
func (r *Result) between(line func(name, format string, args ...any)) {
	p := r.ProcessesResult
	if p.Turns != r.Pairs {
		line("turns", "%d, of %.1f pairs each", p.Turns, float64(r.Pairs)/float64(max(p.Turns, 1)))
	}
	if p.HandOverUs.Max > 0 {
		line("hand-over", "%s: from Unlock in one process to the return of Lock in the next", p.HandOverUs)
	} else {
		line("hand-over", "none, one process had all turns")
	}
	line("", "%s script calls, %s commands, %.2f messages delivered", known(p.ScriptCallsPerHandOver), known(p.CommandsPerHandOver), p.MessagesPerHandOver)
	line("wait", "%s: of a Lock that the server granted", r.LatencyUs)
	line("shares", "%.2f to %.2f of an even share, median %.2f", p.Shares.Min, p.Shares.Max, p.Shares.Median)
	line("order", "%d turns followed one of the same process; at most %d others overtook one wait", p.Repeats, p.Overtaken)
	if p.WithoutTurn > 0 {
		line("", "%d processes never had the lock", p.WithoutTurn)
	}
	if p.Overlaps > 0 {
		line("", "%d turns began before the one before had ended", p.Overlaps)
	}
}

// ofProcesses says how much memory those that contended took.
func (r *Result) ofProcesses() string {
	if r.ProcessesResult == nil {
		return ""
	}
	return fmt.Sprintf(" here, %d MB in a process", r.ProcessRSSBytes>>20)
}

func (c Conditions) cpu() string {
	if c.CPU == "" {
		return ""
	}
	return c.CPU + ", "
}

// version is what was measured, in a few words.
func (c Conditions) version() string {
	words := ""
	if c.Pawl != "" {
		words = "pawl " + c.Pawl + ", "
	}
	if c.Commit != "" {
		words += "commit " + c.Commit[:min(len(c.Commit), 12)] + ", "
	}
	return words
}

// load describes what the scenario put on the client.
func (r *Result) load(line func(name, format string, args ...any)) {
	switch {
	case r.WaitersResult != nil:
		line("futures", "%d on %d names, %d bytes each", r.Count, r.Names, r.HeapBytes)
		line("idle", "%.2f %% of a CPU, for %.1f s", r.IdleCPUPercent, r.IdleS)
		line("finish", "%s: %d served, %d cancelled", r.Finish, r.Served, r.Cancelled)
	case r.HeldResult != nil:
		line("holds", "%d for %.1f s, %d bytes each, %d lost", r.Count, r.HeldS, r.HeapBytes, r.Lost)
		s := r.RenewalsPerSecond
		if !r.AllRenewed {
			line("", "not every hold was renewed in that time, and takes more memory once it is: use a longer --duration")
		}
		line("renewals", "%d, %d to %d a second, mean %.0f, with %.2f %% of a CPU", r.Renewals, s.Min, s.Max, s.Mean, r.HeldCPUPercent)
	case r.ProcessesResult != nil:
		line("workers", "%d processes, %d goroutines each", r.Processes, r.Goroutines/r.Processes)
	default:
		line("workers", "%d goroutines", r.Goroutines)
	}
}

// known prints a figure that may be missing.
func known(figure *float64) string {
	if figure == nil {
		return "unknown"
	}
	return fmt.Sprintf("%.3f", *figure)
}

func micros(us float64) string {
	switch {
	case us < 1e3:
		return fmt.Sprintf("%.1f us", us)
	case us < 1e6:
		return fmt.Sprintf("%.2f ms", us/1e3)
	}
	return fmt.Sprintf("%.2f s", us/1e6)
}
