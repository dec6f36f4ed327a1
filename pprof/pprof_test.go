package pprof_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	rpprof "runtime/pprof"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	pawlpprof "github.com/pawl-lock/pawl/pprof"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The tests share the process's one CPU profile and one trace, so those that
// record do not run in parallel.

func spin(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
		for range 1000 {
			runtime.KeepAlive(new(int))
		}
	}
}

// profile unpacks what go tool pprof reads, and fails if it is none.
func profile(t *testing.T, data []byte) string {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("not a profile: %v", err)
	}
	text, err := io.ReadAll(r)
	if err != nil || len(text) == 0 {
		t.Fatalf("not a profile: %v, %d bytes", err, len(text))
	}
	return string(text)
}

func isTrace(data []byte) bool { return bytes.HasPrefix(data, []byte("go 1.")) }

// captured captures what runs for so long under a role, and returns where that is.
func captured(t *testing.T, role string, d time.Duration) (dir string) {
	dir = filepath.Join(t.TempDir(), "new", "dir")
	fraction := runtime.SetMutexProfileFraction(-1)
	stop, err := pawlpprof.Capture(dir)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.SetMutexProfileFraction(-1) == fraction {
		t.Error("mutexes are not profiled")
	}
	pawlpprof.Do(context.Background(), role, func(context.Context) { spin(d) })
	for range 2 {
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// long is how long a test runs, at most, until the profiler has seen it: on a machine that does other things it is
// not seen in every moment.
const long = 10 * time.Second

func TestCaptureWritesEveryProfile(t *testing.T) {
	fraction := runtime.SetMutexProfileFraction(-1)
	dir := ""
	for d := 300 * time.Millisecond; ; d *= 3 {
		dir = captured(t, "burner", d)
		data, err := os.ReadFile(filepath.Join(dir, "cpu.pprof"))
		if err != nil {
			t.Fatal(err)
		}
		if text := profile(t, data); strings.Contains(text, "burner") && strings.Contains(text, "role") {
			break
		} else if d > long {
			t.Fatal("the CPU profile lacks the role")
		}
	}
	for _, name := range []string{"heap", "mutex", "block", "goroutine"} {
		data, err := os.ReadFile(filepath.Join(dir, name+".pprof"))
		if err != nil {
			t.Fatal(err)
		}
		profile(t, data)
	}
	data, err := os.ReadFile(filepath.Join(dir, "trace.out"))
	if err != nil || !isTrace(data) {
		t.Errorf("trace.out is no trace: %v, %d bytes", err, len(data))
	}
	if got := runtime.SetMutexProfileFraction(-1); got != fraction {
		t.Errorf("mutex profile fraction left at %d, was %d", got, fraction)
	}
}

func TestOnlyOneCaptureAtATime(t *testing.T) {
	stop, err := pawlpprof.Capture(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pawlpprof.Capture(t.TempDir()); err == nil {
		t.Error("a second capture was begun")
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	stop, err = pawlpprof.Capture(t.TempDir())
	if err != nil {
		t.Fatalf("after the first was stopped: %v", err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

func TestCaptureTellsWhatItCannotWrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := pawlpprof.Capture(file); err == nil {
		t.Error("captured into a file")
	}
	dir := t.TempDir()
	stop, err := pawlpprof.Capture(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"heap.pprof", "trace.out"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	err = stop()
	if err == nil || !strings.Contains(err.Error(), "heap.pprof") || !strings.Contains(err.Error(), "trace.out") {
		t.Errorf("stop = %v, want both files named", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "block.pprof")); err != nil {
		t.Errorf("the other profiles were given up: %v", err)
	}
}

func get(h http.Handler, method, url string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, url, nil))
	return w
}

func TestHandlerServesUnderAnyPrefix(t *testing.T) {
	h := pawlpprof.Handler(func() any { return map[string]int{"held": 3} })
	mux := http.NewServeMux()
	mux.Handle("/debug/pawl/", h)
	mux.Handle("/stripped/", http.StripPrefix("/stripped/", h))
	for _, prefix := range []string{"/debug/pawl/", "/stripped/"} {
		index := get(mux, "GET", prefix)
		for _, link := range []string{`"heap?debug=1"`, `"goroutine?debug=1"`, `"profile?seconds=30"`, `"stats"`} {
			if !strings.Contains(index.Body.String(), link) {
				t.Errorf("%s: the index lacks %s", prefix, link)
			}
		}
		var stats map[string]int
		if err := json.Unmarshal(get(mux, "GET", prefix+"stats").Body.Bytes(), &stats); err != nil || stats["held"] != 3 {
			t.Errorf("%sstats: %v, %v", prefix, stats, err)
		}
		for _, name := range []string{"heap", "heap?gc=1", "block", "mutex", "goroutine", "allocs", "threadcreate"} {
			profile(t, get(mux, "GET", prefix+name).Body.Bytes())
		}
		if text := get(mux, "GET", prefix+"goroutine?debug=2").Body.String(); !strings.Contains(text, "TestHandlerServesUnderAnyPrefix") {
			t.Error("debug=2 shows no stacks")
		}
	}
}

func TestHandlerRecordsForTheTimeAsked(t *testing.T) {
	h := pawlpprof.Handler(nil)
	burning, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go pawlpprof.Do(burning, "burner", func(ctx context.Context) {
		defer close(ended)
		for ctx.Err() == nil {
			spin(time.Millisecond)
		}
	})
	for d := 400 * time.Millisecond; ; d *= 3 {
		start := time.Now()
		text := profile(t, get(h, "GET", fmt.Sprint("/profile?seconds=", d.Seconds())).Body.Bytes())
		if took := time.Since(start); took < d {
			t.Errorf("took %v, asked for %v", took, d)
		}
		if strings.Contains(text, "burner") {
			break
		} else if d > long {
			t.Error("the profile lacks what ran")
			break
		}
	}
	stop()
	<-ended
	if data := get(h, "GET", "/trace?seconds=0.05").Body.Bytes(); !isTrace(data) {
		t.Errorf("no trace: %d bytes", len(data))
	}
}

func TestHandlerRefuses(t *testing.T) {
	h := pawlpprof.Handler(nil)
	for url, want := range map[string]int{
		"/nothing": 404, "/stats": 404, "/heap?debug=x": 400, "/heap?debug=-1": 400,
		"/profile?seconds=0": 400, "/profile?seconds=-1": 400, "/profile?seconds=NaN": 400,
		"/profile?seconds=1e9": 400, "/trace?seconds=soon": 400,
	} {
		if got := get(h, "GET", url).Code; got != want {
			t.Errorf("GET %s: %d, want %d", url, got, want)
		}
	}
	if got := get(h, "POST", "/heap").Code; got != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", got)
	}
	if got := get(pawlpprof.Handler(func() any { return func() {} }), "GET", "/stats").Code; got != 500 {
		t.Errorf("stats that are no JSON: %d", got)
	}
	if strings.Contains(get(h, "GET", "/").Body.String(), `"stats"`) {
		t.Error("the index offers stats that are not there")
	}

	if err := rpprof.StartCPUProfile(io.Discard); err != nil {
		t.Fatal(err)
	}
	defer rpprof.StopCPUProfile()
	w := get(h, "GET", "/profile?seconds=0.1")
	if w.Code != http.StatusConflict || w.Header().Get("Content-Disposition") != "" {
		t.Errorf("while another CPU profile runs: %d, %v", w.Code, w.Header())
	}
	if got := get(h, "HEAD", "/profile").Code; got != 200 {
		t.Errorf("HEAD: %d", got)
	}
}

func TestRecordingEndsWhenTheClientLeaves(t *testing.T) {
	server := httptest.NewServer(pawlpprof.Handler(nil))
	defer server.Close()
	ctx, cancel := context.WithCancel(context.Background())
	r, _ := http.NewRequestWithContext(ctx, "GET", server.URL+"/profile?seconds=200", nil)
	failed := make(chan error)
	go func() {
		_, err := http.DefaultClient.Do(r)
		failed <- err
	}()
	recording := func() bool {
		var stacks strings.Builder
		_ = rpprof.Lookup("goroutine").WriteTo(&stacks, 2)
		return strings.Contains(stacks.String(), "pprof.serveTimed")
	}
	await := func(what string, cond func() bool) {
		t.Helper()
		for start := time.Now(); !cond(); time.Sleep(5 * time.Millisecond) {
			if time.Since(start) > 20*time.Second {
				t.Fatalf("never: %s", what)
			}
		}
	}
	await("the profile begins", recording)
	cancel()
	if err := <-failed; err == nil {
		t.Error("a profile came in spite of it")
	}
	await("the profile ends", func() bool { return !recording() })
}

func TestRecordingOutlastsTheServersWriteTimeout(t *testing.T) {
	server := httptest.NewUnstartedServer(pawlpprof.Handler(nil))
	server.Config.WriteTimeout = 100 * time.Millisecond
	server.Start()
	defer server.Close()
	resp, err := http.Get(server.URL + "/profile?seconds=0.3")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	profile(t, data)
	http.DefaultClient.CloseIdleConnections()
}

func TestDoLabelsItsGoroutines(t *testing.T) {
	pawlpprof.Do(context.Background(), "tester", func(ctx context.Context) {
		if role, ok := rpprof.Label(ctx, "role"); !ok || role != "tester" {
			t.Errorf("role = %q, %v", role, ok)
		}
	})
}

// TestOnlyTheStandardLibrary also keeps net/http/pprof out: it would register
// itself on the default mux.
func TestOnlyTheStandardLibrary(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(out)); got != "github.com/pawl-lock/pawl/pprof" {
		t.Errorf("beside the standard library: %s", got)
	}
	out, err = exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(out), "net/http/pprof") {
		t.Error("imports net/http/pprof")
	}
}
