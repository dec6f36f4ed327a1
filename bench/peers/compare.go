package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pawl-lock/pawl/bench"
)

// Report is what a comparison measured.
type Report struct {
	Scenario   string    `json:"scenario"`
	Server     string    `json:"server"`
	Goroutines int       `json:"goroutines"`
	Rounds     int       `json:"rounds"`
	Clients    []*Client `json:"clients"`
	// Ratios are those of the first client to each other one.
	Ratios []Ratio `json:"ratios"`
}

// Client holds the turns of one client.
type Client struct {
	Name   string          `json:"name"`
	About  string          `json:"about"`
	Median Figures         `json:"median"`
	Turns  []*bench.Result `json:"turns"`
}

// Figures are medians over the turns, each figure for itself.
type Figures struct {
	PairsPerSecond     float64 `json:"pairs_per_second"`
	ClientCPUUsPerPair float64 `json:"client_cpu_us_per_pair"`
	P50Us              float64 `json:"p50_us"`
	P99Us              float64 `json:"p99_us"`
	AllocsPerPair      float64 `json:"allocs_per_pair"`
	CommandsPerPair    float64 `json:"commands_per_pair"`
}

// Ratio is one client's medians divided by another's.
type Ratio struct {
	Of                 string  `json:"of"`
	To                 string  `json:"to"`
	PairsPerSecond     float64 `json:"pairs_per_second"`
	ClientCPUUsPerPair float64 `json:"client_cpu_us_per_pair"`
	P50Us              float64 `json:"p50_us"`
}

// compare gives each subject its turn, rounds times. Every other round goes
// backwards, so that nobody always runs on what somebody else left warm; each turn
// has fresh connections, so that no idle client adds to another's CPU time.
func compare(ctx context.Context, server *bench.Server, chosen []subject, cfg bench.Config, rounds int) (*Report, error) {
	report := &Report{Scenario: cfg.Scenario, Rounds: rounds}
	for _, s := range chosen {
		report.Clients = append(report.Clients, &Client{Name: s.name, About: s.about})
	}
	for round := range rounds {
		for i := range chosen {
			if round%2 == 1 {
				i = len(chosen) - 1 - i
			}
			result, err := turn(ctx, server, chosen[i], cfg)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", chosen[i].name, err)
			}
			c := report.Clients[i]
			c.Turns = append(c.Turns, result)
			report.Server, report.Goroutines = result.Server, result.Goroutines
		}
	}
	report.conclude()
	return report, nil
}

func turn(ctx context.Context, server *bench.Server, s subject, cfg bench.Config) (*bench.Result, error) {
	client, err := s.open(ctx, server.URL())
	if err != nil {
		return nil, err
	}
	result, err := bench.RunLoop(ctx, server, client, cfg)
	return result, errors.Join(err, client.Close())
}

func (r *Report) conclude() {
	for _, c := range r.Clients {
		of := func(get func(*bench.Result) float64) float64 { return median(c.Turns, get) }
		c.Median = Figures{
			PairsPerSecond:     of(func(t *bench.Result) float64 { return t.PairsPerSecond }),
			ClientCPUUsPerPair: of(func(t *bench.Result) float64 { return t.ClientCPUUsPerPair }),
			P50Us:              of(func(t *bench.Result) float64 { return t.LatencyUs.P50 }),
			P99Us:              of(func(t *bench.Result) float64 { return t.LatencyUs.P99 }),
			AllocsPerPair:      of(func(t *bench.Result) float64 { return t.AllocsPerPair }),
			CommandsPerPair: of(func(t *bench.Result) float64 {
				if t.CommandsPerPair == nil {
					return 0
				}
				return *t.CommandsPerPair
			}),
		}
	}
	first := r.Clients[0]
	for _, other := range r.Clients[1:] {
		r.Ratios = append(r.Ratios, Ratio{
			Of: first.Name, To: other.Name,
			PairsPerSecond:     ratio(first.Median.PairsPerSecond, other.Median.PairsPerSecond),
			ClientCPUUsPerPair: ratio(first.Median.ClientCPUUsPerPair, other.Median.ClientCPUUsPerPair),
			P50Us:              ratio(first.Median.P50Us, other.Median.P50Us),
		})
	}
}

func median(turns []*bench.Result, get func(*bench.Result) float64) float64 {
	var all []float64
	for _, t := range turns {
		all = append(all, get(t))
	}
	slices.Sort(all)
	mid := len(all) / 2
	if len(all)%2 == 0 {
		return (all[mid-1] + all[mid]) / 2
	}
	return all[mid]
}

// ratio is a / b, 0 if there is none.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// err names the turns that went wrong.
func (r *Report) err() error {
	var all []error
	for _, c := range r.Clients {
		for i, t := range c.Turns {
			if err := t.Err(); err != nil {
				all = append(all, fmt.Errorf("%s, turn %d: %w", c.Name, i+1, err))
			}
		}
	}
	return errors.Join(all...)
}
