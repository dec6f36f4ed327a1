package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/embedded"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/resp"
)

// roleEnv makes the test binary a worker process.
const roleEnv = "PAWL_TEST_DEMO_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		play(role)
	}
	goleak.VerifyTestMain(m,
		// gnet's worker pool starts these two when it is imported; they never end.
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"),
	)
}

// play is the worker process: an ordinary one, or one of the roles.
func play(role string) {
	var w WorkerConfig
	var lease int64
	if _, err := fmt.Sscan(os.Getenv("PAWL_TEST_DEMO_TASK"), &w.URL, &w.Key, &w.Increments, &lease, &w.Unlocked, &w.Stay); err != nil {
		panic(err)
	}
	w.Lease = time.Duration(lease)
	switch role {
	case "always locks":
		w.Unlocked = false
	case "fails":
		os.Exit(3)
	case "babbles":
		fmt.Println("hello")
	case "hangs":
		select {}
	case "stops early":
		w.Increments--
	}
	if err := Work(context.Background(), w, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// workers starts worker processes; worker number 2 plays the role, or all of them.
func workers(role string, all bool) func(context.Context, WorkerConfig) *exec.Cmd {
	return func(ctx context.Context, w WorkerConfig) *exec.Cmd {
		cmd := exec.CommandContext(ctx, os.Args[0])
		part := "ordinary"
		if all || w.Number == 2 {
			part = role
		}
		cmd.Env = append(os.Environ(), roleEnv+"="+part, "PAWL_TEST_DEMO_TASK="+
			fmt.Sprint(w.URL, " ", w.Key, " ", w.Increments, " ", int64(w.Lease), " ", w.Unlocked, " ", w.Stay))
		return cmd
	}
}

func config(screen *bytes.Buffer) Config {
	return Config{
		Workers: 3, Increments: 10, Lease: 500 * time.Millisecond,
		Worker: workers("ordinary", true), Screen: NewScreen(screen, false),
	}
}

// steady is for rounds whose locks must last: this process is the server's, too. A worker
// that does not run for a whole lease writes without the lock.
func steady(t *testing.T, scenario func(t testing.TB)) {
	t.Helper()
	cputime.Steady(t, 100*time.Millisecond, scenario)
}

func TestDemo_LockedRound_LosesNothingUnlikeTheControl(t *testing.T) {
	t.Parallel()
	steady(t, testLockedRoundLosesNothingAndControlDoes)
}

func testLockedRoundLosesNothingAndControlDoes(t testing.TB) {
	var screen bytes.Buffer
	if err := Run(t.Context(), config(&screen)); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"killed while it held the lock", "the others went on", "25 increments completed, the counter says 25",
		"30 increments completed, the counter says ", " lost\n",
	} {
		if !strings.Contains(screen.String(), text) {
			t.Errorf("the screen lacks %q:\n%s", text, screen.String())
		}
	}
}

func TestDemo_LostUpdates_AreFound(t *testing.T) {
	t.Parallel()
	var screen bytes.Buffer
	cfg := config(&screen)
	cfg.WithoutLock, cfg.Increments = true, 40
	if err := Run(t.Context(), cfg); !errors.Is(err, ErrLostUpdate) {
		t.Errorf("got %v, want ErrLostUpdate:\n%s", err, screen.String())
	}
}

// A control round that loses nothing proves nothing: it is repeated, and reported.
func TestDemo_ControlWithoutARace_Fails(t *testing.T) {
	t.Parallel()
	steady(t, testControlWithoutARaceIsAnError)
}

func testControlWithoutARaceIsAnError(t testing.TB) {
	var screen bytes.Buffer
	cfg := config(&screen)
	cfg.Worker = workers("always locks", true)
	if err := Run(t.Context(), cfg); !errors.Is(err, ErrNoRace) {
		t.Errorf("got %v, want ErrNoRace", err)
	}
	if n := strings.Count(screen.String(), "30 increments completed, the counter says 30: 0 lost"); n != controls {
		t.Errorf("%d control rounds, want %d:\n%s", n, controls, screen.String())
	}
}

// The hold may end after the write was sent. Made once more, it would count twice.
func TestDemo_LockLostAfterAWrite_WriteCounts(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	proxy := faultproxy.New(t, "tcp", server.Addr())
	url, err := engine.ParseURL("redis://" + proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	c, err := openCounter(t.Context(), url, "k")
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	hold, lose := context.WithCancelCause(t.Context())
	proxy.Delay(faultproxy.All, 0, 200*time.Millisecond) // the answers only
	sent := proxy.Watch(faultproxy.Is("SET", "k"))
	type result struct {
		written int
		err     error
	}
	added := make(chan result)
	go func() {
		tsk := task{counter: c}
		n, err := tsk.add(hold, false)
		added <- result{n, err}
	}()
	sent.Wait(1)
	lose(engine.ErrLost)
	if r := <-added; r.written != 1 || r.err != nil {
		t.Errorf("wrote %d, %v", r.written, r.err)
	}
	if n, err := c.read(t.Context()); n != 1 || err != nil {
		t.Errorf("the counter says %d, %v", n, err)
	}
	if err := c.write(hold, 2); !errors.Is(err, engine.ErrLost) {
		t.Errorf("a write without the lock: %v", err)
	}

	proxy.CutAfterRequest(faultproxy.Is("SET", "k"))
	if err := c.write(t.Context(), 2); !errors.Is(err, errUnknown) || !errors.Is(err, engine.ErrUnavailable) {
		t.Errorf("a write whose answer was lost: %v", err)
	}
}

func TestDemo_BadWorkers_EndIt(t *testing.T) {
	t.Parallel()
	for role, want := range map[string]string{
		"fails":   "worker 2 failed: exit status 3",
		"babbles": `worker 2 says "hello"`,
		// An exit code of 0 is not enough.
		"stops early": "24 increments instead of 25",
	} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			var screen bytes.Buffer
			cfg := config(&screen)
			cfg.Worker = workers(role, false)
			if err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

func TestDemo_WorkerCannotStart_IsReported(t *testing.T) {
	t.Parallel()
	cfg := config(new(bytes.Buffer))
	cfg.Worker = func(ctx context.Context, w WorkerConfig) *exec.Cmd {
		if w.Number == 3 {
			return exec.CommandContext(ctx, "no-such-program")
		}
		return workers("ordinary", true)(ctx, w)
	}
	if err := Run(t.Context(), cfg); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

// Whatever notices it first.
func TestDemo_CancelledWhileWorkersStart_SaysSo(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cfg := config(new(bytes.Buffer))
	cfg.Worker = func(ctx context.Context, w WorkerConfig) *exec.Cmd {
		if w.Number == 2 {
			cancel(stop)
		}
		return workers("hangs", true)(ctx, w)
	}
	if err := Run(ctx, cfg); !errors.Is(err, stop) {
		t.Errorf("got %v, want the cause", err)
	}
}

// A cancelled demo ends, whatever its workers do.
func TestDemo_Cancelled_KillsItsWorkers(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cfg := config(new(bytes.Buffer))
	var cmds []*exec.Cmd
	cfg.Worker = func(ctx context.Context, w WorkerConfig) *exec.Cmd {
		cmd := workers("hangs", true)(ctx, w)
		cmds = append(cmds, cmd)
		if w.Number == cfg.Workers {
			time.AfterFunc(50*time.Millisecond, func() { cancel(stop) })
		}
		return cmd
	}
	if err := Run(ctx, cfg); !errors.Is(err, stop) {
		t.Errorf("got %v, want the cause", err)
	}
	for _, cmd := range cmds {
		if cmd.ProcessState == nil {
			t.Error("a worker was not waited for")
		}
	}
}

// writerFunc is a writer that looks at what the screen gets.
type writerFunc func(line string)

func (f writerFunc) Write(b []byte) (int, error) { f(string(b)); return len(b), nil }

// It may be somebody's server.
func TestDemo_Cancelled_LeavesNoKeys(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg := config(nil)
	cfg.URL, cfg.Lease = server.URL(), 200*time.Millisecond
	cfg.Screen = NewScreen(writerFunc(func(line string) {
		if strings.Contains(line, "was killed") { // by then there is a counter
			cancel()
		}
	}), false)
	if err := Run(ctx, cfg); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	url, err := engine.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	c, err := openCounter(t.Context(), url, "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) { // the lock ends with its lease
		keys, err := c.client.Do(t.Context(), "KEYS", "*")
		if err != nil {
			t.Fatal(err)
		}
		left := ""
		keys.Each(func(_ int, key resp.Value) bool {
			if !strings.HasPrefix(string(key.Bytes), "pawl_queue:") { // where workers that were killed waited; it ends within a minute
				left += string(key.Bytes) + " "
			}
			return true
		})
		if left == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left: %s", left)
		}
	}
}

// A parent that is gone leaves the worker's standard input at its end.
func TestWorker_ParentEnds_Ends(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	other, err := engine.Open(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Mutex("held:lock").Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{{"k", ""}, {"k", wordGo + "\n"}, {"held", wordGo + "\n"}} { // before it begins, while it works, while it waits
		key, words := c[0], c[1]
		cmd := workers("ordinary", true)(t.Context(), WorkerConfig{
			URL: server.URL(), Key: key, Increments: 1 << 30, Lease: time.Second,
		})
		var stderr bytes.Buffer
		cmd.Stdin, cmd.Stderr = strings.NewReader(words), &stderr
		if err := cmd.Run(); err == nil || !strings.Contains(stderr.String(), errOrphan.Error()) {
			t.Errorf("after %q it ended with %v and said %q", words, err, stderr.String())
		}
	}
}

// Nobody may have the lock when the server goes away: then no command fails, and all wait.
func TestWorker_ServerAway_GivesUp(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	proxy := faultproxy.New(t, "tcp", server.Addr())
	other, err := engine.Open(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	held, err := other.Mutex("k:lock").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := WorkerConfig{URL: "redis://" + proxy.Addr() + "?dial_timeout=2s", Key: "k", Increments: 2, Lease: 10 * time.Second}
	in, words := io.Pipe()
	said, out := io.Pipe()
	defer words.Close()
	defer said.Close()
	ended := make(chan error, 1)
	go func() {
		err := Work(t.Context(), w, in, out)
		out.CloseWithError(err) // so that nobody listens in vain
		ended <- err
	}()
	lines := bufio.NewScanner(said)
	hear := func(word string) {
		t.Helper()
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), word) {
			t.Fatalf("heard %q, want %q: %v", lines.Text(), word, lines.Err())
		}
	}
	hear(wordReady)
	fmt.Fprintln(words, wordGo)
	select { // a worker that waits for others does not give up
	case err := <-ended:
		t.Fatalf("ended while the lock was held: %v", err)
	case <-time.After(time.Second):
	}
	if err := held.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	hear(wordDone) // the next increment waits for another word
	proxy.Down()
	fmt.Fprintln(words, wordGo)
	select {
	case err := <-ended:
		if !errors.Is(err, engine.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it still waits for a server that is away")
	}
}

func TestScreen_Terminal_GetsABar(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := NewScreen(&out, true)
	s.begin(10)
	s.progress(3)
	s.say("a line")
	s.progress(10)
	s.end()
	if text := out.String(); !strings.Contains(text, "increments") || !strings.Contains(text, "3/10") || !strings.Contains(text, "a line\n") {
		t.Errorf("got %q", text)
	}
}
