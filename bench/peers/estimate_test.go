package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/bench"
)

// turnsOf are turns of a client, one for each rate.
func turnsOf(rates ...float64) (all []*bench.Result) {
	for _, rate := range rates {
		all = append(all, &bench.Result{PairsPerSecond: rate, ClientCPUUsPerPair: 1e6 / rate, LatencyUs: bench.Latency{P50: 3}})
	}
	return all
}

func TestEstimate_TenTurns_IsTheMedianWithItsInterval(t *testing.T) {
	t.Parallel()
	got := estimate([]float64{10, 2, 3, 8, 5, 6, 7, 4, 9, 1})
	if got.Median != 5.5 || got.Low != 2 || got.High != 9 { // 97.9 %; from 3 to 8 it would be 89.1 %
		t.Errorf("%+v", got)
	}
	if s := got.format(1); s != "5.5 (2.0 to 9.0)" {
		t.Error(s)
	}
}

func TestEstimate_FewTurns_HasNoInterval(t *testing.T) {
	t.Parallel()
	got := estimate([]float64{1, 2, 3})
	if got.known() || got.Median != 2 || got.format(0) != "2 [1 to 3]" {
		t.Errorf("%+v", got)
	}
	if _, err := json.Marshal(got); err != nil { // no infinity
		t.Error(err)
	}
}

// From round to round everything changes, and within each round a has twice as many as b, and
// sometimes more, sometimes less than c.
func TestReport_RoundsThatDiffer_ComparesWithinEach(t *testing.T) {
	t.Parallel()
	r := &Report{Rounds: 10, Clients: []*Client{
		{Name: "a", Turns: turnsOf(100, 900, 200, 600, 400, 800, 300, 700, 500, 1000)},
		{Name: "b", Turns: turnsOf(50, 450, 100, 300, 200, 400, 150, 350, 250, 500)},
		{Name: "c", Turns: turnsOf(99, 901, 201, 599, 401, 799, 299, 701, 501, 999)},
	}}
	r.conclude()
	if len(r.Ratios) != 2 {
		t.Fatalf("%+v", r.Ratios)
	}
	if got := r.Ratios[0]; got.Of != "a" || got.To != "b" || got.PairsPerSecond != (Estimate{2, 2, 2, 2, 2}) || got.ClientCPUUsPerPair != (Estimate{0.5, 0.5, 0.5, 0.5, 0.5}) {
		t.Errorf("%+v", got)
	}
	var text bytes.Buffer
	if err := r.writeText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"a to b: pairs/s 2.00 x (2.00 to 2.00), CPU/pair 0.50 x (0.50 to 0.50), p50 no difference (1.00 to 1.00 x)",
		"a to c: pairs/s no difference (1.00 to 1.00 x)",
		"550 (200 to 900)",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
}

func TestReport_FewerThanTenRounds_SaysSo(t *testing.T) {
	t.Parallel()
	r := &Report{Rounds: 7, Clients: []*Client{
		{Name: "a", Turns: turnsOf(2, 2, 2, 2, 2, 2, 2)}, {Name: "b", Turns: turnsOf(1, 1, 1, 1, 1, 1, 1)},
	}}
	r.conclude()
	var text bytes.Buffer
	if err := r.writeText(&text); err != nil || !strings.Contains(text.String(), "Too few rounds to tell a difference from chance: at least 10.\na to b: pairs/s 2.00 x, ") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

// Whether its calls can be cancelled is a matter of the caller's, so like is compared with like.
func TestReport_BothContexts_AreComparedApart(t *testing.T) {
	t.Parallel()
	var r Report
	for _, name := range []string{"a", "b", "a" + withoutCancel, "b" + withoutCancel} {
		r.Clients = append(r.Clients, &Client{Name: name, Turns: turnsOf(1)})
	}
	r.conclude()
	var got []string
	for _, x := range r.Ratios {
		got = append(got, x.Of+" "+x.To)
	}
	if s := strings.Join(got, ", "); s != "a b, a-background b-background" {
		t.Error(s)
	}
}
