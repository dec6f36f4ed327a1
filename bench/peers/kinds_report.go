package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/pawl-lock/pawl/bench"
)

// KindsReport is what the scenario kinds measured: a report for each workload, with Pawl first and
// then Redisson.
type KindsReport struct {
	Scenario  string    `json:"scenario"`
	Rounds    int       `json:"rounds"`
	Workloads []*Report `json:"workloads"`
	// Beside are medians of what was compared within each round, one for each workload.
	Beside []Beside `json:"beside"`
}

// Beside compares Pawl's turn in a workload with others of the same round.
type Beside struct {
	Workload string   `json:"workload"`
	Redisson Estimate `json:"pairs_to_redisson"` // Pawl's pairs a second by those of Redisson
	Mutex    Estimate `json:"p50_to_mutex"`      // Pawl's p50 by that of its Mutex
}

// sample is how long the commands of Redisson are counted.
const sample = 300 * time.Millisecond

// compareKinds gives Pawl and Redisson turns in each workload, in all rounds; every other round goes
// backwards. Before that, Redisson has a turn that does not count. At the end it counts Redisson's commands.
func compareKinds(ctx context.Context, server *bench.Server, java *redisson, cfg bench.Config, rounds int) (*KindsReport, error) {
	many := cfg.Goroutines
	report := &KindsReport{Scenario: kinds, Rounds: rounds}
	for _, w := range workloads {
		r := &Report{Scenario: w.name, Goroutines: 1, Rounds: rounds, Clients: []*Client{
			{Name: "pawl", About: "its defaults"}, {Name: "redisson", About: "its defaults"},
		}}
		if w.name == readers {
			r.Goroutines = many
		}
		report.Workloads = append(report.Workloads, r)
	}
	turn := func(i, client int, d time.Duration) (*bench.Result, error) {
		own := cfg
		own.Goroutines, own.Duration = report.Workloads[i].Goroutines, d
		if client == 0 {
			return kindTurn(ctx, server, workloads[i], own)
		}
		if cfg.Warmup > 0 {
			if _, err := java.turn(workloads[i], own.Goroutines, cfg.Warmup); err != nil {
				return nil, err
			}
		}
		return java.turn(workloads[i], own.Goroutines, d)
	}
	for i := range workloads { // Java compiles what it has run often
		if _, err := java.turn(workloads[i], report.Workloads[i].Goroutines, cfg.Duration); err != nil {
			return nil, fmt.Errorf("%s: %w", workloads[i].name, err)
		}
	}
	for round := range rounds {
		for n := range 2 * len(workloads) {
			if round%2 == 1 {
				n = 2*len(workloads) - 1 - n
			}
			result, err := turn(n/2, n%2, cfg.Duration)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", workloads[n/2].name, err)
			}
			c := report.Workloads[n/2].Clients[n%2]
			c.Turns = append(c.Turns, result)
		}
	}
	cfg.Warmup = 0
	for i, r := range report.Workloads {
		perPair, err := commandsOf(ctx, server, func() (*bench.Result, error) { return turn(i, 1, sample) })
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.Scenario, err)
		}
		for _, t := range r.Clients[1].Turns {
			t.CommandsPerPair = &perPair
		}
		r.Server = r.Clients[0].Turns[0].Server
		r.conclude()
		report.Beside = append(report.Beside, besides(r, report.Workloads[0]))
	}
	return report, nil
}

// besides compares within each round, so that what changed from round to round changes nothing.
func besides(r, mutex *Report) Beside {
	pawl, java := r.Clients[0].Turns, r.Clients[1].Turns
	within := func(get func(round int) float64) Estimate {
		var values []float64
		for round := range pawl {
			values = append(values, get(round))
		}
		return estimate(values)
	}
	return Beside{
		Workload: r.Scenario,
		Redisson: within(func(i int) float64 { return ratio(pawl[i].PairsPerSecond, java[i].PairsPerSecond) }),
		Mutex:    within(func(i int) float64 { return ratio(pawl[i].LatencyUs.P50, mutex.Clients[0].Turns[i].LatencyUs.P50) }),
	}
}

// commandsOf counts the commands of a turn, those at its beginning and its end included.
func commandsOf(ctx context.Context, server *bench.Server, turn func() (*bench.Result, error)) (perPair float64, err error) {
	m, err := openMonitor(ctx, server.URL())
	if err != nil {
		return 0, err
	}
	result, err := turn()
	n := m.count()
	if err = errors.Join(err, m.Close()); err != nil {
		return 0, err
	}
	return ratio(float64(n), float64(result.Pairs)), nil
}

func (k *KindsReport) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(k)
}

func (k *KindsReport) writeText(w io.Writer) error {
	fmt.Fprintf(w, "kinds on %s, one caller, at last %d readers of one name; medians of %d rounds,\nthose of what is compared within each\n\n",
		k.Workloads[0].Server, k.Workloads[len(k.Workloads)-1].Goroutines, k.Rounds)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "pairs/s\tp50 us\tp99 us\tCPU us/pair\tcommands/pair\tp50 to mutex\tpairs to redisson\t  workload")
	for i, r := range k.Workloads {
		for n, c := range r.Clients {
			beside := "\t"
			if n == 0 {
				beside = k.Beside[i].Mutex.format(2) + "\t" + k.Beside[i].Redisson.format(2)
			}
			m := c.Median
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.3f\t%s\t  %s, %s\n", m.PairsPerSecond.format(0), m.P50Us.format(1), m.P99Us.format(1),
				m.ClientCPUUsPerPair.format(2), m.CommandsPerPair, beside, r.Scenario, c.Name)
		}
	}
	return t.Flush()
}

func (k *KindsReport) err() error {
	var all []error
	for _, r := range k.Workloads {
		if err := r.err(); err != nil {
			all = append(all, fmt.Errorf("%s: %w", r.Scenario, err))
		}
	}
	return errors.Join(all...)
}
