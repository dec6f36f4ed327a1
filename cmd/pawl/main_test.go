package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// asPawlEnv makes the test binary the command: tests run what users run, with the
// race detector if they have it.
const asPawlEnv = "PAWL_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asPawlEnv) != "" {
		main()
	}
	// Under nohup the tests' children would ignore SIGHUP, as they should; what is caught is
	// theirs again.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	goleak.VerifyTestMain(m,
		// gnet's worker pool starts these two when it is imported; they never end.
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"),
	)
}

// patience bounds every wait of these tests.
const patience = 30 * time.Second

// invocation is a command line that was run, or runs.
type invocation struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer // after wait
	code           int          // 128+n if signal n ended it
}

// prepare makes a command line. env comes on top of an environment without any of
// Pawl's variables.
func prepare(t testing.TB, env []string, args ...string) *invocation {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := cputime.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	v := &invocation{cmd: exec.CommandContext(ctx, self, args...)}
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "PAWL_") {
			v.cmd.Env = append(v.cmd.Env, e)
		}
	}
	// With the race detector a process sleeps for a second before it exits, unless told.
	v.cmd.Env = append(append(v.cmd.Env, asPawlEnv+"=1", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE")), env...)
	v.cmd.Stdout, v.cmd.Stderr = &v.stdout, &v.stderr
	v.cmd.WaitDelay = patience // for what a command leaves behind
	return v
}

// start runs a command line in the background; wait follows.
func start(t testing.TB, env []string, args ...string) *invocation {
	t.Helper()
	v := prepare(t, env, args...)
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if v.cmd.ProcessState == nil { // the test has failed
			_ = v.cmd.Process.Kill()
			_ = v.cmd.Wait()
		}
	})
	return v
}

func (v *invocation) wait(t testing.TB) *invocation {
	t.Helper()
	var exit *exec.ExitError
	if err := v.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%q: %v", v.cmd.Args[1:], err)
	}
	v.code = v.cmd.ProcessState.ExitCode()
	if s := v.died(); s != 0 {
		v.code = 128 + int(s)
	}
	return v
}

// pawl runs a command line to its end.
func pawl(t testing.TB, env []string, args ...string) *invocation {
	t.Helper()
	return start(t, env, args...).wait(t)
}

// expect checks the exit code and that the output has the texts.
func (v *invocation) expect(t testing.TB, code int, texts ...string) {
	t.Helper()
	all := v.stdout.String() + v.stderr.String()
	if v.code != code {
		t.Errorf("%q: exit code %d, want %d\n%s", v.cmd.Args[1:], v.code, code, all)
	}
	for _, text := range texts {
		if !strings.Contains(all, text) {
			t.Errorf("%q: output lacks %q:\n%s", v.cmd.Args[1:], text, all)
		}
	}
}

// server starts a redis-server and returns the environment that names it, with a
// short lease so that a watchdog notices soon.
func server(t *testing.T, opts ...redistest.Option) (*redistest.Server, []string) {
	t.Helper()
	s := redistest.Start(t, opts...)
	return s, []string{target.URLEnv + "=" + s.URL() + "?lease=4s"}
}

// openEngine opens an engine, which is somebody else for the commands.
func openEngine(t *testing.T, url string) *engine.Engine {
	t.Helper()
	eng, err := engine.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = eng.Close() })
	return eng
}

// hold takes a lock.
func hold(t *testing.T, url, name string) *engine.Hold {
	t.Helper()
	h, err := openEngine(t, url).Mutex(name).TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// someoneWaits waits until somebody listens to the channel of a lock. An engine that holds one has a channel of another
// name, after a second.
func someoneWaits(t *testing.T, s *redistest.Server) {
	t.Helper()
	eventually(t, "somebody waits", func() bool { return len(s.Do("PUBSUB", "CHANNELS", "redisson_*{*").([]any)) > 0 })
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for start := cputime.Now(); !cond(); time.Sleep(5 * time.Millisecond) {
		if start.Elapsed() > patience {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
