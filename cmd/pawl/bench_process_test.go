package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/internal/redistest"
)

func TestBenchProcesses_JSON_HasWhatTheyMeasured(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Password("s3cret"))
	v, _ := measured(t, []string{target.PasswordEnv + "=s3cret"}, "bench", "hot", "--processes", "3", "--duration", "500ms", "--warmup", "100ms",
		"--addr", "redis://"+s.Addr(), "--format", "json")
	var got struct {
		Processes, Goroutines  int
		Turns, Pairs, Overlaps int64
		ScriptCalls            *float64                   `json:"script_calls_per_hand_over"`
		Commands               *float64                   `json:"commands_per_hand_over"`
		Messages               *float64                   `json:"messages_per_hand_over"`
		HandOver               struct{ P50, P99 float64 } `json:"hand_over_us"`
		Shares                 struct{ Min, Median, Max float64 }
	}
	if err := json.Unmarshal(v.stdout.Bytes(), &got); err != nil {
		t.Fatalf("%v:\n%s", err, v.stdout.String())
	}
	if got.Processes != 3 || got.Goroutines != 3 || got.Turns == 0 || got.Turns != got.Pairs || got.Overlaps != 0 ||
		got.ScriptCalls == nil || got.Commands == nil || got.Messages == nil || got.HandOver.P99 < got.HandOver.P50 || got.Shares.Max < 1 {
		t.Errorf("%s", v.stdout.String())
	}
	if v.stderr.Len() > 0 {
		t.Errorf("on stderr: %q", v.stderr.String())
	}
}

func TestBenchProcesses_Text_SaysHowTheLockWent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pawl(t, nil, brief("hot", "--processes", "2", "--embedded", "--profile", dir)...).
		expect(t, 0, "2 processes, 4 goroutines each", "hand-over ", "messages delivered", "of an even share")
	for _, name := range []string{"process-1/cpu.pprof", "process-2/cpu.pprof"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// One that contends cannot connect.
func TestBenchProcesses_ServerRefuses_IsTheServersFault(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Line("maxclients 5"))
	v := pawl(t, nil, "bench", "hot", "--processes", "3", "--addr", s.URL()+"?dial_timeout=1s")
	v.expect(t, exit.Server, "pawl: bench: process ", "max number of clients reached")
	if n := strings.Count(v.stderr.String(), "pawl: "); n != 1 {
		t.Errorf("%d lines say so:\n%s", n, v.stderr.String())
	}
}
