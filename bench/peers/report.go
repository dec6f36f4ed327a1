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
	fmt.Fprintln(t, "pairs/s\tCPU us/pair\tp50 us\tp99 us\tallocs/pair\tcommands/pair\t  client")
	for _, c := range r.Clients {
		m := c.Median
		fmt.Fprintf(t, "%.0f\t%.2f\t%.1f\t%.1f\t%.2f\t%.3f\t  %s (%s)\n", m.PairsPerSecond,
			m.ClientCPUUsPerPair, m.P50Us, m.P99Us, m.AllocsPerPair, m.CommandsPerPair, c.Name, c.About)
	}
	if err := t.Flush(); err != nil {
		return err
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
