package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

func (r *Report) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

func (r *Report) writeText(w io.Writer) error {
	fmt.Fprintf(w, "%s on %s, %s, %d rounds: medians, and where they are with a confidence of 95 %%; of few rounds [the lowest to the highest]\n\n", r.Scenario, r.Server, r.who(), r.Rounds)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "pairs/s\tCPU us/pair\tp50 us\tp99 us\tslowest/mean\tallocs/pair\tscript calls/pair\tcommands/pair\t  client")
	for _, c := range r.Clients {
		m := c.Median
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.2f\t%.2f\t%s\t%s\t  %s (%s)\n", m.PairsPerSecond.format(0), m.ClientCPUUsPerPair.format(2),
			m.P50Us.format(1), m.P99Us.format(1), m.SlowestShare, m.AllocsPerPair, perPair(m.ScriptCallsPerPair), perPair(m.CommandsPerPair), c.Name, c.about())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, c := range r.Clients {
		if c.Hot != nil {
			fmt.Fprintf(w, "%s: %s\n", c.Name, c.hot())
		}
	}
	fmt.Fprintln(w)
	if r.Rounds < fewest {
		fmt.Fprintf(w, "Too few rounds to tell a difference from chance: at least %d.\n", fewest)
	}
	for _, x := range r.Ratios {
		if _, err := fmt.Fprintln(w, x); err != nil {
			return err
		}
	}
	return nil
}

// who says how many contend.
func (r *Report) who() string {
	if r.Engines > 1 {
		return fmt.Sprintf("%d goroutines of %d engines", r.Goroutines, r.Engines)
	}
	return fmt.Sprintf("%d goroutines", r.Goroutines)
}

func (c *Client) about() string {
	if c.Polls {
		return "polling: " + c.About
	}
	return c.About
}

func perPair(figure float64) string {
	if figure == 0 {
		return "unknown"
	}
	return fmt.Sprintf("%.3f", figure)
}

// hot says what went wrong under contention, over all turns.
func (c *Client) hot() string {
	var late, lost int64
	var without []float64
	for _, t := range c.Hot {
		late += t.TimedOut
		lost += t.LostUpdates
		without = append(without, float64(t.WithoutPair))
	}
	e := estimate(without)
	var longest float64
	for _, t := range c.Turns {
		longest = max(longest, t.LatencyUs.Max)
	}
	return fmt.Sprintf("%s without a pair, %d acquisitions given up, %d updates lost, the longest acquisition %.1f ms", e.turns(0, " goroutines"), late, lost, longest/1e3)
}
