package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

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
	// Hot is what only hot measures, one for each turn. There, the latency of a turn is that
	// of the acquisition, and pairs that ended after the duration are not in pairs_per_second.
	Hot []*HotTurn `json:"hot,omitempty"`
}

// Figures are medians over the turns, each figure for itself.
type Figures struct {
	PairsPerSecond     float64 `json:"pairs_per_second"`
	LeastPerSecond     float64 `json:"least_pairs_per_second"` // of the turns
	MostPerSecond      float64 `json:"most_pairs_per_second"`
	ClientCPUUsPerPair float64 `json:"client_cpu_us_per_pair"`
	P50Us              float64 `json:"p50_us"`
	P99Us              float64 `json:"p99_us"`
	AllocsPerPair      float64 `json:"allocs_per_pair"`
	CommandsPerPair    float64 `json:"commands_per_pair"` // 0: not known
	// SlowestShare is the pairs of the slowest goroutine by those of the mean one.
	SlowestShare float64 `json:"slowest_share"`
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
func compare(ctx context.Context, server *bench.Server, chosen []subject, cfg bench.Config, rounds int, patience time.Duration) (*Report, error) {
	report := &Report{Scenario: cfg.Scenario, Rounds: rounds}
	for _, s := range chosen {
		report.Clients = append(report.Clients, &Client{Name: s.name, About: s.about})
	}
	for round := range rounds {
		for i := range chosen {
			if round%2 == 1 {
				i = len(chosen) - 1 - i
			}
			c := report.Clients[i]
			var result *bench.Result
			var hot *HotTurn
			var err error
			if cfg.Scenario == bench.Hot {
				result, hot, err = hotTurn(ctx, server, chosen[i], cfg, patience)
				c.Hot = append(c.Hot, hot)
			} else {
				result, err = turn(ctx, server, chosen[i], cfg)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", chosen[i].name, err)
			}
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
			LeastPerSecond:     slices.MinFunc(c.Turns, byRate).PairsPerSecond,
			MostPerSecond:      slices.MaxFunc(c.Turns, byRate).PairsPerSecond,
			SlowestShare:       of(func(t *bench.Result) float64 { return ratio(float64(t.Fairness.Min), t.Fairness.Mean) }),
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

func byRate(a, b *bench.Result) int { return cmp.Compare(a.PairsPerSecond, b.PairsPerSecond) }

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
		for i, t := range c.Hot {
			if t.LostUpdates != 0 {
				all = append(all, fmt.Errorf("%s, turn %d: %d updates were lost: two had the lock at once", c.Name, i+1, t.LostUpdates))
			}
		}
	}
	return errors.Join(all...)
}
