package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pawl-lock/pawl/bench"
)

// Report is what a comparison measured.
type Report struct {
	Scenario   string    `json:"scenario"`
	Server     string    `json:"server"`
	Goroutines int       `json:"goroutines"`
	Engines    int       `json:"engines,omitempty"` // of each client in hot, with connections of their own
	Rounds     int       `json:"rounds"`
	Clients    []*Client `json:"clients"`
	// Ratios are those of the first client to each other one; in single, those of calls that can
	// be cancelled and of calls that cannot apart.
	Ratios []Ratio `json:"ratios"`
}

// Client holds the turns of one client.
type Client struct {
	Name   string          `json:"name"`
	About  string          `json:"about"`
	Polls  bool            `json:"polls,omitempty"` // its waiters try again and again
	Median Figures         `json:"median"`
	Turns  []*bench.Result `json:"turns"`
	// Hot is what only hot measures, one for each turn. There, the latency of a turn is that
	// of the acquisition, and pairs that ended after the duration are not in pairs_per_second.
	Hot []*HotTurn `json:"hot,omitempty"`
}

// Figures are those of all turns, each figure for itself.
type Figures struct {
	PairsPerSecond     Estimate `json:"pairs_per_second"`
	ClientCPUUsPerPair Estimate `json:"client_cpu_us_per_pair"`
	P50Us              Estimate `json:"p50_us"`
	P99Us              Estimate `json:"p99_us"`
	AllocsPerPair      float64  `json:"allocs_per_pair"`   // median, as those below
	CommandsPerPair    float64  `json:"commands_per_pair"` // 0: not known
	ScriptCallsPerPair float64  `json:"script_calls_per_pair"`
	// SlowestShare is the pairs of the slowest goroutine by those of the mean one.
	SlowestShare float64 `json:"slowest_share"`
}

// compare gives each subject its turn, rounds times. Every other round goes
// backwards, so that nobody always runs on what somebody else left warm; each turn
// has fresh connections, so that no idle client adds to another's CPU time.
func compare(ctx context.Context, server *bench.Server, chosen []subject, cfg bench.Config, rounds int, hot hotConfig) (*Report, error) {
	report := &Report{Scenario: cfg.Scenario, Rounds: rounds}
	if cfg.Scenario == bench.Hot {
		report.Engines = hot.engines
	}
	for _, s := range chosen {
		report.Clients = append(report.Clients, &Client{Name: s.name, About: s.about, Polls: s.polls})
	}
	for round := range rounds {
		for i := range chosen {
			if round%2 == 1 {
				i = len(chosen) - 1 - i
			}
			c := report.Clients[i]
			var result *bench.Result
			var contended *HotTurn
			var err error
			if cfg.Scenario == bench.Hot {
				result, contended, err = hotTurn(ctx, server, chosen[i], cfg, hot)
				c.Hot = append(c.Hot, contended)
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
	client, err := s.open(ctx, s.name, server.URL())
	if err != nil {
		return nil, err
	}
	result, err := bench.RunLoop(ctx, server, client, cfg)
	return result, errors.Join(err, client.Close())
}

func (r *Report) conclude() {
	for _, c := range r.Clients {
		c.Median = Figures{
			PairsPerSecond:     of(c.Turns, func(t *bench.Result) float64 { return t.PairsPerSecond }),
			ClientCPUUsPerPair: of(c.Turns, func(t *bench.Result) float64 { return t.ClientCPUUsPerPair }),
			P50Us:              of(c.Turns, func(t *bench.Result) float64 { return t.LatencyUs.P50 }),
			P99Us:              of(c.Turns, func(t *bench.Result) float64 { return t.LatencyUs.P99 }),
			SlowestShare:       of(c.Turns, func(t *bench.Result) float64 { return ratio(float64(t.Fairness.Min), t.Fairness.Mean) }).Median,
			AllocsPerPair:      of(c.Turns, func(t *bench.Result) float64 { return t.AllocsPerPair }).Median,
			CommandsPerPair:    of(c.Turns, func(t *bench.Result) float64 { return known(t.CommandsPerPair) }).Median,
			ScriptCallsPerPair: of(c.Turns, func(t *bench.Result) float64 { return known(t.ScriptCallsPerPair) }).Median,
		}
	}
	first := make(map[bool]*Client) // of those that can be cancelled, and of the others
	for _, c := range r.Clients {
		alike := strings.HasSuffix(c.Name, withoutCancel)
		if first[alike] == nil {
			first[alike] = c
		} else {
			r.Ratios = append(r.Ratios, ratioOf(first[alike], c))
		}
	}
}

// known is a figure, 0 if it is missing.
func known(figure *float64) float64 {
	if figure == nil {
		return 0
	}
	return *figure
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
