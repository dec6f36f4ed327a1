package main

import (
	"fmt"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"

	"github.com/pawl-lock/pawl/bench"
)

// Estimate is a figure of several turns: the median, and the interval in which the median of many
// more would be, with a confidence of 95 % or more. Nothing is assumed about how they are
// distributed.
type Estimate struct {
	Median float64 `json:"median"`
	// Low and High are both 0 if there are too few turns for an interval.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Least and Most are those of the turns.
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
}

// fewest is how many rounds a comparison needs.
const fewest = 10

func estimate(values []float64) Estimate {
	s := benchmath.AssumeNothing.Summary(benchmath.NewSample(values, &benchmath.DefaultThresholds), 0.95)
	e := Estimate{Median: s.Center, Low: s.Lo, High: s.Hi, Least: slices.Min(values), Most: slices.Max(values)}
	if math.IsInf(s.Lo, 0) || math.IsInf(s.Hi, 0) {
		e.Low, e.High = 0, 0
	}
	return e
}

// of estimates a figure of the turns.
func of(turns []*bench.Result, get func(*bench.Result) float64) Estimate {
	var values []float64
	for _, t := range turns {
		values = append(values, get(t))
	}
	return estimate(values)
}

// known reports whether there is an interval.
func (e Estimate) known() bool { return e.High > 0 }

// format prints the median and the interval with so many digits, without an interval what turns says.
func (e Estimate) format(digits int) string {
	if !e.known() {
		return e.turns(digits, "")
	}
	return fmt.Sprintf("%.*f (%.*f to %.*f)", digits, e.Median, digits, e.Low, digits, e.High)
}

// turns prints the median with its unit, and in brackets the lowest and the highest turn, if they
// differ.
func (e Estimate) turns(digits int, unit string) string {
	if e.Least == e.Most {
		return fmt.Sprintf("%.*f%s", digits, e.Median, unit)
	}
	return fmt.Sprintf("%.*f%s [%.*f to %.*f]", digits, e.Median, unit, digits, e.Least, digits, e.Most)
}

// Ratio compares two clients within each round, so that what changes from round to round changes
// nothing.
type Ratio struct {
	Of                 string   `json:"of"`
	To                 string   `json:"to"`
	PairsPerSecond     Estimate `json:"pairs_per_second"`
	ClientCPUUsPerPair Estimate `json:"client_cpu_us_per_pair"`
	P50Us              Estimate `json:"p50_us"`
	rounds             int
}

func ratioOf(a, b *Client) Ratio {
	within := func(get func(*bench.Result) float64) Estimate {
		var values []float64
		for i := range min(len(a.Turns), len(b.Turns)) {
			if divisor := get(b.Turns[i]); divisor != 0 {
				values = append(values, get(a.Turns[i])/divisor)
			}
		}
		if len(values) == 0 {
			return Estimate{}
		}
		return estimate(values)
	}
	return Ratio{
		Of: a.Name, To: b.Name, rounds: min(len(a.Turns), len(b.Turns)),
		PairsPerSecond:     within(func(t *bench.Result) float64 { return t.PairsPerSecond }),
		ClientCPUUsPerPair: within(func(t *bench.Result) float64 { return t.ClientCPUUsPerPair }),
		P50Us:              within(func(t *bench.Result) float64 { return t.LatencyUs.P50 }),
	}
}

func (r Ratio) String() string {
	say := func(e Estimate) string {
		switch {
		case r.rounds < fewest || !e.known():
			return e.turns(2, " x")
		case e.Low <= 1 && e.High >= 1:
			return fmt.Sprintf("no difference (%.2f to %.2f x)", e.Low, e.High)
		}
		return fmt.Sprintf("%.2f x (%.2f to %.2f)", e.Median, e.Low, e.High)
	}
	return fmt.Sprintf("%s to %s: pairs/s %s, CPU/pair %s, p50 %s",
		r.Of, r.To, say(r.PairsPerSecond), say(r.ClientCPUUsPerPair), say(r.P50Us))
}
