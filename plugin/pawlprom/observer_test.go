package pawlprom_test

import (
	"context"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/plugin/pawlprom"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
}

func open(t testing.TB, url string, o engine.Observer) *engine.Engine {
	t.Helper()
	cfg, err := engine.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Observer = o
	e, err := engine.New(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// scrape is what Prometheus reads, as lines of name and value.
func scrape(t testing.TB, reg *prometheus.Registry) map[string]string {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{ErrorHandling: promhttp.PanicOnError}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	lines := make(map[string]string)
	for line := range strings.Lines(w.Body.String()) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && !strings.HasPrefix(line, "#") {
			lines[name] = value
		}
	}
	return lines
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) { // between two looks
		if time.Now().After(end) {
			t.Fatalf("not within 20s: %s", what)
		}
	}
}

func TestObserver_Metrics_AreInTheDocumentWithTheirLabels(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/observability.md")
	must(t, err)
	metric, label := regexp.MustCompile(`pawl_\w+`), regexp.MustCompile(`\w+`)
	documented := make(map[string]string)
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, "|"); len(cells) == 5 {
			for _, name := range metric.FindAllString(cells[1], -1) {
				documented[name] = strings.Join(label.FindAllString(cells[2], -1), ",")
			}
		}
	}
	all := make(chan *prometheus.Desc, 100)
	pawlprom.New(prometheus.NewRegistry()).Describe(all)
	close(all)
	described := make(map[string]string)
	for d := range all {
		m := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: {(.*)}}`).FindStringSubmatch(d.String())
		described[m[1]] = m[2]
	}
	if len(described) < 20 || !maps.Equal(documented, described) {
		t.Errorf("the document has\n%v\nthe plugin\n%v", documented, described)
	}
}

func TestObserver_Locks_ShowInTheExposition(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	o := pawlprom.New(reg)
	e := open(t, redistest.Start(t).URL(), o)
	ctx := context.Background()
	h, err := e.Mutex("orders:42").Lock(ctx)
	must(t, err)
	if _, err := e.FairMutex("orders:42").TryLock(ctx); err == nil {
		t.Fatal("a FairMutex is a Mutex")
	}
	waiting := e.Mutex("orders:42").LockAsync(ctx)
	eventually(t, "it waits", func() bool { return scrape(t, reg)[`pawl_waiting`] == "1" })
	lost, err := e.Mutex("short").Lock(ctx, engine.Lease(100*time.Millisecond))
	must(t, err)
	<-lost.Done()
	eventually(t, "it is lost", func() bool { return scrape(t, reg)[`pawl_lost_total{kind="mutex",reason="lease_ended"}`] == "1" })
	many, err := e.LockMany(ctx, []string{"a", "b"})
	must(t, err)

	for name, want := range map[string]string{
		`pawl_acquire_duration_seconds_count{kind="mutex",outcome="granted"}`:     "2",
		`pawl_acquire_duration_seconds_count{kind="fair",outcome="invalid"}`:      "1",
		`pawl_acquire_duration_seconds_count{kind="multilock",outcome="granted"}`: "1",
		`pawl_hold_duration_seconds_count{end="lease_ended",kind="mutex"}`:        "1",
		`pawl_held`:              "3", // both locks of the MultiLock
		`pawl_waiting`:           "1",
		`pawl_servers_connected`: "1",
		`pawl_servers_down`:      "0",
	} {
		if got := scrape(t, reg)[name]; got != want {
			t.Errorf("%s is %q, want %s", name, got, want)
		}
	}
	if age := scrape(t, reg)["pawl_oldest_hold_seconds"]; age == "" || age == "0" {
		t.Errorf("the oldest hold is %q s old", age)
	}

	must(t, h.Unlock(ctx))
	next, err := waiting.Await(ctx)
	must(t, err)
	must(t, next.Unlock(ctx))
	must(t, many.Unlock(ctx))
	eventually(t, "nothing is held", func() bool {
		all := scrape(t, reg)
		return all[`pawl_held`] == "0" && all[`pawl_waiting`] == "0" && all["pawl_oldest_hold_seconds"] == "0" &&
			all[`pawl_release_duration_seconds_count{kind="mutex",result="ok"}`] == "2"
	})
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// Names would make a series each.
func TestNameLabel_Names_AreMappedToFew(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	o := pawlprom.New(reg, pawlprom.NameLabel(func(name string) string {
		kind, _, _ := strings.Cut(name, ":")
		return kind + ":*"
	}))
	e := open(t, redistest.Start(t).URL(), o)
	for i := range 100 {
		h, err := e.Mutex(fmt.Sprint("orders:", i)).Lock(context.Background())
		must(t, err)
		must(t, h.Unlock(context.Background()))
	}
	all := scrape(t, reg)
	if got := all[`pawl_acquire_duration_seconds_count{kind="mutex",name="orders:*",outcome="granted"}`]; got != "100" {
		t.Errorf("orders:* counts %q", got)
	}
	for name := range all {
		if strings.Contains(name, "orders:") && !strings.Contains(name, `name="orders:*"`) {
			t.Errorf("a name is a label: %s", name)
		}
	}
}

// A counter that goes down is a restart to Prometheus.
func TestObserver_EngineClosed_CountersStay(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	s := redistest.Start(t)
	first, second := pawlprom.New(reg), pawlprom.New(reg)
	if first != second {
		t.Fatal("two Observers on one Registerer")
	}
	commands := func() (n float64) {
		_, err := fmt.Sscan(scrape(t, reg)["pawl_commands_total"], &n)
		must(t, err)
		return n
	}
	var last float64
	for range 5 {
		e := open(t, s.URL(), first)
		h, err := e.Mutex("x").Lock(context.Background())
		must(t, err)
		must(t, h.Unlock(context.Background()))
		must(t, e.Close())
		n := commands()
		if n < last+2 {
			t.Errorf("%v commands after %v", n, last)
		}
		last = n
	}
	if got := scrape(t, reg)["pawl_servers_connected"]; got != "0" {
		t.Errorf("%s servers of engines that are closed", got)
	}
}

func TestNew_NamesAreTaken_Panics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "pawl_oldest_hold_seconds", Help: "Another."}))
	defer func() {
		if recover() == nil {
			t.Error("it did not panic")
		}
	}()
	pawlprom.New(reg)
}

// A service: many goroutines, scraped all the time. Each lock counts once.
func TestObserver_ServiceUnderLoad_CountsEachLockOnce(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	e := open(t, redistest.Start(t).URL(), pawlprom.New(reg))
	const workers, each = 20, 100
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := range each {
				name := fmt.Sprint("x", (w+i)%7)
				if i%2 == 0 {
					must(t, e.Mutex(name).Do(context.Background(), func(context.Context, *engine.Hold) error { return nil }))
					continue
				}
				h, err := e.Mutex(name).LockAsync(context.Background()).Await(context.Background())
				must(t, err)
				h.UnlockAsync()
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
			scrape(t, reg)
		}
	}
	eventually(t, "all are counted", func() bool {
		m := scrape(t, reg)
		n := fmt.Sprint(workers * each)
		return m[`pawl_acquire_duration_seconds_count{kind="mutex",outcome="granted"}`] == n &&
			m[`pawl_hold_duration_seconds_count{end="released",kind="mutex"}`] == n &&
			m[`pawl_release_duration_seconds_count{kind="mutex",result="ok"}`] == n &&
			m[`pawl_handed_over_total`] == fmt.Sprint(e.Stats().HandedOver) &&
			m[`pawl_held`] == "0" && m[`pawl_waiting`] == "0"
	})
}

// Events that do not fit into the queue change no gauge: that of an acquisition may be missing, and that of the end of its
// hold not.
func TestObserver_EventsAreDropped_GaugesAreRight(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	gate := make(chan struct{})
	blocks := engine.ObserverFuncs{OnAcquireEnd: func(context.Context, engine.Acquisition, engine.AcquireEnd) { <-gate }}
	e := open(t, redistest.Start(t).URL(), engine.Observers(pawlprom.New(reg), blocks))
	ctx := context.Background()
	take := func(name string) *engine.Hold {
		h, err := e.Mutex(name).LockAsync(ctx).Await(ctx)
		must(t, err)
		return h
	}
	for e.Stats().EventsDropped == 0 {
		var all sync.WaitGroup
		for w := range 64 {
			all.Go(func() {
				for range 100 {
					must(t, take(fmt.Sprint("x", w)).Unlock(ctx))
				}
			})
		}
		all.Wait()
	}
	h := take("y") // its AcquireEnd is dropped
	close(gate)
	eventually(t, "there is room again", func() bool {
		dropped := e.Stats().EventsDropped
		must(t, take("z").Unlock(ctx))
		return e.Stats().EventsDropped == dropped
	})
	if got := scrape(t, reg)["pawl_held"]; got != "1" {
		t.Errorf("%s are held", got)
	}
	must(t, h.Unlock(ctx))
	if all := scrape(t, reg); all["pawl_held"] != "0" || all["pawl_waiting"] != "0" {
		t.Errorf("%s are held, %s wait", all["pawl_held"], all["pawl_waiting"])
	}
}

// Two Observers with two registries, of a service and of a library in it, say.
func TestObserver_TwoOfOneEngine_EachCountsForItself(t *testing.T) {
	t.Parallel()
	one, two := prometheus.NewRegistry(), prometheus.NewRegistry()
	e := open(t, redistest.Start(t).URL(), engine.Observers(pawlprom.New(one), pawlprom.New(two)))
	h, err := e.Mutex("x").Lock(context.Background())
	must(t, err)
	for i, reg := range []*prometheus.Registry{one, two} {
		all := scrape(t, reg)
		if all[`pawl_held`] != "1" || all[`pawl_waiting`] != "0" {
			t.Errorf("while it is held %d shows %v held, %v waiting", i, all[`pawl_held`], all[`pawl_waiting`])
		}
	}
	must(t, h.Unlock(context.Background()))
	for i, reg := range []*prometheus.Registry{one, two} {
		all := scrape(t, reg)
		if all[`pawl_held`] != "0" || all["pawl_oldest_hold_seconds"] != "0" || all[`pawl_hold_duration_seconds_count{end="released",kind="mutex"}`] != "1" {
			t.Errorf("after that %d shows %v held, %v s, %v ends", i, all[`pawl_held`], all["pawl_oldest_hold_seconds"], all[`pawl_hold_duration_seconds_count{end="released",kind="mutex"}`])
		}
	}
}

// A lock's name may be any bytes, a label's value not.
func TestNameLabel_InvalidUTF8_IsReplaced(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	e := open(t, redistest.Start(t).URL(), pawlprom.New(reg, pawlprom.NameLabel(func(name string) string { return name })))
	h, err := e.Mutex("x\xff").Lock(context.Background())
	must(t, err)
	must(t, h.Unlock(context.Background()))
	if got := scrape(t, reg)["pawl_hold_duration_seconds_count{end=\"released\",kind=\"mutex\",name=\"x\uFFFD\"}"]; got != "1" {
		t.Errorf("%q ends", got)
	}
}

// Shutdown waits for holders, whose work counts as before.
func TestObserver_Shutdown_CountsToTheEnd(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	e := open(t, redistest.Start(t).URL(), pawlprom.New(reg))
	h, err := e.Mutex("x").Lock(context.Background(), engine.Lease(time.Minute))
	must(t, err)
	over := make(chan error, 1)
	go func() { over <- e.Shutdown(context.Background()) }()
	eventually(t, "it is shutting down", func() bool { return e.Ready() != nil })
	if got := scrape(t, reg)["pawl_servers_connected"]; got != "1" {
		t.Errorf("%s servers while a holder works", got)
	}
	for range 10 {
		must(t, h.Extend(context.Background(), time.Hour))
	}
	must(t, h.Unlock(context.Background()))
	must(t, <-over)
	if got, want := scrape(t, reg)["pawl_commands_total"], fmt.Sprint(e.Stats().Commands); got != want {
		t.Errorf("%s commands, want %s", got, want)
	}
}
