package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"testing"

	"go.uber.org/goleak"

	"github.com/pawl-lock/pawl/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestUncontendedLocksAndUnlocksWithTwoCommandsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var out bytes.Buffer
	args := []string{"--addr", server.URL(), "--goroutines", "8", "--duration", "200ms", "uncontended"}
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatal(err)
	}
	var r Result
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if r.Pairs == 0 || r.Errors != 0 || r.Stuck != 0 || r.Fairness.Min == 0 || r.LatencyUs.P50 == 0 {
		t.Errorf("%+v", r)
	}
	if math.Abs(r.CommandsPerPair-2) > 0.001 {
		t.Errorf("%v commands a pair", r.CommandsPerPair)
	}
	if got := server.Do("DBSIZE"); got != int64(0) {
		t.Errorf("%v keys are left", got)
	}
}

func TestWrongUseIsRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{}, {"hot"}, {"--peer", "nobody", "uncontended"}, {"--format", "xml", "uncontended"},
		{"--goroutines", "0", "uncontended"}, {"--no-such-flag"},
	} {
		if err := run(t.Context(), args, nil); !errors.Is(err, errUsage) || exitCode(err) != 64 {
			t.Errorf("%q: %v", args, err)
		}
	}
}
