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
	fmt.Fprintf(w, "%s on %s, %d goroutines, medians of %d rounds\n\n", r.Scenario, r.Server, r.Goroutines, r.Rounds)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "pairs/s\tleast\tmost\tCPU us/pair\tp50 us\tp99 us\tslowest/mean\tallocs/pair\tcommands/pair\t  client")
	for _, c := range r.Clients {
		m := c.Median
		fmt.Fprintf(t, "%.0f\t%.0f\t%.0f\t%.2f\t%.1f\t%.1f\t%.2f\t%.2f\t%s\t  %s (%s)\n", m.PairsPerSecond, m.LeastPerSecond,
			m.MostPerSecond, m.ClientCPUUsPerPair, m.P50Us, m.P99Us, m.SlowestShare, m.AllocsPerPair, c.commands(), c.Name, c.About)
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
	for _, x := range r.Ratios {
		_, err := fmt.Fprintf(w, "%s to %s: %.2f x the throughput, %.2f x the client CPU, %.2f x the p50\n",
			x.Of, x.To, x.PairsPerSecond, x.ClientCPUUsPerPair, x.P50Us)
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) commands() string {
	if c.Median.CommandsPerPair == 0 {
		return "unknown"
	}
	return fmt.Sprintf("%.3f", c.Median.CommandsPerPair)
}

// hot says what went wrong under contention, over all turns.
func (c *Client) hot() string {
	var late, lost int64
	for _, t := range c.Hot {
		late += t.TimedOut
		lost += t.LostUpdates
	}
	var longest float64
	for _, t := range c.Turns {
		longest = max(longest, t.LatencyUs.Max)
	}
	return fmt.Sprintf("%d acquisitions given up, %d updates lost, the longest acquisition %.1f ms", late, lost, longest/1e3)
}
