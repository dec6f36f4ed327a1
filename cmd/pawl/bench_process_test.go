package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/internal/redistest"
)

func TestBenchProcesses_JSON_HasWhatTheyMeasured(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Password("s3cret"))
	v := pawl(t, []string{target.PasswordEnv + "=s3cret"}, "bench", "hot", "--processes", "3", "--duration", "500ms", "--warmup", "100ms",
		"--addr", "redis://"+s.Addr(), "--format", "json")
	v.expect(t, 0)
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

func TestBenchProcesses_CoordinatorEnds_TheyEndToo(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no signals that one process sends another")
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		s := redistest.Start(t)
		v := prepare(t, nil, "bench", "hot", "--processes", "3", "--duration", "5m", "--addr", s.URL())
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		v.cmd.Stderr = writer // the processes have it, too, so it ends with the last of them
		if err := v.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		writer.Close()
		engines := func() int {
			list, _ := s.Do("CLIENT", "LIST").(string)
			return strings.Count(list, "name=pawl-bench")
		}
		eventually(t, "all contend", func() bool { return engines() >= 9 && s.CommandStats()["subscribe"] >= 3 })
		if err := v.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		v.wait(t).expect(t, 128+int(sig))
		eventually(t, "no process is connected", func() bool { return engines() == 0 })
		if err := reader.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		said, err := io.ReadAll(reader)
		if err != nil {
			t.Errorf("after %v a process has not ended: %v", sig, err)
		}
		if want := map[syscall.Signal]string{syscall.SIGINT: "pawl: ended by signal: interrupt\n"}[sig]; string(said) != want {
			t.Errorf("after %v: %q on stderr", sig, said)
		}
		if n := s.Do("DBSIZE"); n != int64(0) {
			t.Errorf("after %v: %v keys are left", sig, n)
		}
	}
}
