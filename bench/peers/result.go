package main

import "fmt"

// Result is what one run measured, with the fields of `pawl bench`.
type Result struct {
	Scenario           string   `json:"scenario"`
	Peer               string   `json:"peer"`
	Server             string   `json:"server"`
	Comparable         bool     `json:"comparable"`
	Goroutines         int      `json:"goroutines"`
	Count              int      `json:"count"`
	DurationS          float64  `json:"duration_s"`
	Pairs              int64    `json:"pairs"`
	PairsPerSecond     float64  `json:"pairs_per_second"`
	ClientCPUUsPerPair float64  `json:"client_cpu_us_per_pair"`
	LatencyUs          Latency  `json:"latency_us"`
	AllocsPerPair      float64  `json:"allocs_per_pair"`
	HeapBytes          int64    `json:"heap_bytes"`
	GoroutinesPeak     int      `json:"goroutines_peak"`
	CommandsPerPair    float64  `json:"commands_per_pair"`
	Fairness           Fairness `json:"fairness"`
	Errors             int64    `json:"errors"`
	Stuck              int      `json:"stuck"`
}

// Latency holds percentiles of lock + unlock, in microseconds.
type Latency struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// Fairness holds pairs per goroutine.
type Fairness struct {
	Min  int64   `json:"min"`
	Max  int64   `json:"max"`
	Mean float64 `json:"mean"`
}

func (r Result) String() string {
	return fmt.Sprintf("%s %s on %s: %d goroutines, %.0f pairs/s, %.2f us client CPU and %.2f allocations a pair, "+
		"p50 %.0f p99 %.0f p99.9 %.0f max %.0f us, %.2f commands a pair, %d errors, %d stuck",
		r.Peer, r.Scenario, r.Server, r.Goroutines, r.PairsPerSecond, r.ClientCPUUsPerPair, r.AllocsPerPair,
		r.LatencyUs.P50, r.LatencyUs.P99, r.LatencyUs.P999, r.LatencyUs.Max, r.CommandsPerPair, r.Errors, r.Stuck)
}
