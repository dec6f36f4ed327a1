package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/demo"
	"github.com/pawl-lock/pawl/internal/redistest"
)

func TestDemoShowsThatTheLockCounts(t *testing.T) {
	t.Parallel()
	// What the environment names is not touched without --addr.
	v := pawl(t, []string{target.URLEnv + "=redis://127.0.0.1:1"}, "demo", "--increments", "20", "--lease", "1s")
	v.expect(t, 0, "embedded server", "was killed while it held the lock", "the others went on",
		"70 increments completed, the counter says 70", "Without the lock:", " lost\n")
}

// The check can fail: without the lock in its first round the demo does.
func TestDemoFindsOutThatTheLockIsMissing(t *testing.T) {
	t.Parallel()
	v := pawl(t, nil, "demo", "--without-lock", "--increments", "40")
	v.expect(t, 1, "updates were lost under the lock", "140 increments completed")
}

func TestDemoRunsOnARealServerAndCleansUp(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Password("s3cret"))
	v := pawl(t, []string{target.PasswordEnv + "=s3cret"}, "demo", "--addr", "redis://"+s.Addr()+"/3",
		"--workers", "3", "--increments", "20", "--lease", "1s")
	v.expect(t, 0, "on the server ("+s.Addr()+")", "50 increments completed, the counter says 50")
	if strings.Contains(v.stdout.String()+v.stderr.String(), "s3cret") {
		t.Error("the password was printed")
	}
	if left, _ := s.Do("INFO", "keyspace").(string); strings.Contains(left, "db") {
		t.Errorf("keys are left: %s", left)
	}
	// What the server denies a worker is the demo's exit code, too.
	pawl(t, []string{target.PasswordEnv + "=s3cret"}, "demo", "--addr", "redis://"+s.Addr()+"?replicas=1&ack_timeout=100ms").
		expect(t, exit.Server, "0 of 1 replicas", "pawl: demo: worker ")
	// A connection that is refused is not waited for, as with other commands.
	pawl(t, nil, "demo", "--addr", "redis://127.0.0.1:1?dial_timeout=1h").expect(t, 69, "refused")
}

// In either round, and whatever the workers do when it dies.
func TestADemoWhoseServerDiesSaysSo(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{nil, {"--without-lock"}} {
		s := redistest.Start(t)
		v := start(t, nil, append([]string{"demo", "--addr", s.URL() + "?dial_timeout=1s", "--increments", "100000"}, flags...)...)
		eventually(t, "there is a counter", func() bool { return strings.Contains(s.Info("INFO", "keyspace"), "db0") })
		s.Kill()
		v.wait(t).expect(t, exit.Server, "server is unavailable", "pawl: demo: worker ")
	}
}

func TestDemoWritesProfilesOfEveryProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// A worker that does not run for a whole lease writes without the lock.
	cputime.Steady(t, 20*time.Millisecond, func(t testing.TB) {
		pawl(t, nil, "demo", "--increments", "5", "--lease", "500ms", "--profile", dir).expect(t, 0)
	})
	for _, name := range []string{"cpu.pprof", "trace.out", "worker-1/cpu.pprof", "worker-1/heap.pprof"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInterruptedDemoTakesItsWorkersAlong(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no signals that one process sends another")
	}
	s := redistest.Start(t)
	v := start(t, nil, "demo", "--addr", s.URL(), "--increments", "100000")
	clients := func() int {
		list, _ := s.Do("CLIENT", "LIST").(string)
		return strings.Count(list, "name=pawl")
	}
	eventually(t, "the workers work", func() bool { return clients() > 12 })
	if err := v.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	v.wait(t).expect(t, 130, "ended by signal")
	eventually(t, "no process is connected", func() bool { return clients() == 0 })
}

// A write to a connection whose other side has ended raises SIGPIPE, as the embedded server's
// answers to the worker that is killed may.
func TestADemoGoesOnWhenAConnectionBreaks(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no signals that one process sends another")
	}
	v := prepare(t, nil, "demo", "--increments", "20", "--lease", "1s")
	v.cmd.Stdout = nil
	stdout, err := v.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	if _, err := lines.ReadString('\n'); err != nil { // then it is at work
		t.Fatal(err)
	}
	if err := v.cmd.Process.Signal(syscall.SIGPIPE); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(lines)
	if err != nil {
		t.Fatal(err)
	}
	v.wait(t).expect(t, 0)
	if !strings.Contains(string(rest), "Nothing was lost with the lock") {
		t.Errorf("it said %q", rest)
	}
}

func TestADemoThatCannotBeShownIsAnError(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("this system has no file that cannot be written: ", err)
	}
	defer full.Close()
	v := prepare(t, nil, "demo")
	v.cmd.Stdout = full
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	v.wait(t).expect(t, exit.Failed, "cannot show what happens")
}

// As in a pipeline with head, or when everything dies at once.
func TestADemoThatEndsEarlyLeavesNoCounterForEver(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no signals that one process sends another")
	}
	s := redistest.Start(t)
	counters := func() (names []string) {
		for _, key := range s.Do("KEYS", "pawl-demo:*").([]any) {
			if name := key.(string); !strings.HasSuffix(name, ":lock") {
				names = append(names, name)
			}
		}
		return names
	}
	begin := func(stdout io.Writer) *invocation {
		v := prepare(t, nil, "demo", "--addr", s.URL(), "--increments", "100000")
		v.cmd.Stdout = stdout
		if err := v.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "there is a counter", func() bool { return len(counters()) == 1 })
		return v
	}

	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	v := begin(writer)
	writer.Close()
	reader.Close()
	v.wait(t).expect(t, 128+int(syscall.SIGPIPE))
	if left := counters(); len(left) > 0 {
		t.Errorf("after its reader had ended: %v", left)
	}

	v = begin(nil)
	_ = v.cmd.Process.Kill()
	_ = v.wait(t)
	for _, left := range counters() {
		if ttl := s.Do("PTTL", left).(int64); ttl < 0 {
			t.Errorf("after SIGKILL %v stays for ever (%d)", left, ttl)
		}
	}
}

// When it is given up after a worker was killed, that one's lock would stay for its lease.
func TestADemoThatIsGivenUpLeavesNoLock(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no signals that one process sends another")
	}
	s := redistest.Start(t)
	v := prepare(t, nil, "demo", "--addr", s.URL(), "--lease", "30s", "--increments", "10")
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	v.cmd.Stdout = writer
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	for lines := bufio.NewScanner(reader); lines.Scan() && !strings.Contains(lines.Text(), "was killed"); {
	}
	if err := v.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	v.wait(t).expect(t, 130, "ended by signal")
	if left := s.Do("KEYS", "*").([]any); len(left) > 0 {
		t.Errorf("keys are left: %v", left)
	}
}

// A lease that no worker could have, or that outlasts the demo.
func TestADemoWithAUselessLeaseIsWrongUsage(t *testing.T) {
	t.Parallel()
	for _, lease := range []string{"-1s", "0", "1ms", "31s", "2h"} {
		pawl(t, nil, "demo", "--lease", lease).expect(t, exit.Usage, "ease")
	}
}

// A process's arguments are for everybody to see.
func TestWorkersGetTheURLInTheirEnvironment(t *testing.T) {
	t.Parallel()
	cmd := workerCommand(context.Background(), demo.WorkerConfig{
		Number: 1, URL: "redis://:s3cret@host", Key: "k", Increments: 3, Lease: time.Second, Unlocked: true,
	}, target.AddFlag(new(cobra.Command)), "dir")
	if args := strings.Join(cmd.Args, " "); strings.Contains(args, "s3cret") {
		t.Errorf("arguments %q", args)
	}
	if !slices.Contains(cmd.Env, target.URLEnv+"=redis://:s3cret@host") {
		t.Error("the environment lacks the URL")
	}
}
