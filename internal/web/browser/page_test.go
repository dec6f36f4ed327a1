package browser

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/internal/web"
)

// axe-core 4.14.1, from the npm registry.
//
//go:embed testdata/axe.min.js
var axe string

// shots is where screenshots go, if it is set: for people to look at.
var shots = os.Getenv("PAWL_SCREENSHOTS")

// tab is a page in a browser. What the page logs as an error fails the test.
type tab struct {
	t   *testing.T
	ctx context.Context
}

func browser(t *testing.T) *tab {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("there is no Chromium on PATH, so the page was not tried in a browser: apt-get install chromium")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WindowSize(1200, 800))
	ctx, cancelAll := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, cancelTab := chromedp.NewContext(ctx, chromedp.WithErrorf(func(string, ...any) {})) // of events it does not know
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	t.Cleanup(func() { cancel(); cancelTab(); cancelAll() })
	b := &tab{t, ctx}
	chromedp.ListenTarget(ctx, func(e any) {
		switch e := e.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("the page: %v", e.ExceptionDetails.Exception.Description)
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.APITypeError {
				t.Errorf("the page logs %s", e.Args[0].Value)
			}
		}
	})
	return b
}

func (b *tab) run(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// eval evaluates a JavaScript expression.
func eval[T any](b *tab, js string) (v T) {
	b.t.Helper()
	b.run(chromedp.Evaluate(js, &v, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	return v
}

// until waits until a JavaScript expression is true.
func (b *tab) until(what, js string) {
	b.t.Helper()
	for end := time.Now().Add(20 * time.Second); !eval[bool](b, "!!("+js+")"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			b.shot("failed")
			b.t.Fatalf("not in time: %s\n%s", what, eval[string](b, "document.body.innerText"))
		}
	}
}

// shot keeps a picture of the page.
func (b *tab) shot(name string) {
	b.t.Helper()
	if shots == "" {
		return
	}
	var png []byte
	b.run(chromedp.CaptureScreenshot(&png))
	if err := os.WriteFile(filepath.Join(shots, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// accessible fails the test for each fault that axe finds.
func (b *tab) accessible(where string) {
	b.t.Helper()
	if !eval[bool](b, "!!window.axe") {
		b.run(chromedp.Evaluate(axe+";0", nil))
	}
	type fault struct {
		ID, Impact, Help string
		Nodes            []struct{ HTML, FailureSummary string }
	}
	for _, f := range eval[[]fault](b, `axe.run(document, {resultTypes: ["violations"]}).then((r) => r.violations)`) {
		text, _ := json.MarshalIndent(f, "", " ")
		b.t.Errorf("%s: %s", where, text)
	}
}

// look sets the colours and the size.
func (b *tab) look(scheme string, width, height int64) {
	b.t.Helper()
	b.run(
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
		chromedp.EmulateViewport(width, height),
	)
}

func open(t *testing.T, url, service string) *engine.Engine {
	t.Helper()
	cfg, err := engine.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Service, cfg.Labels, cfg.CallSites = service, map[string]string{"zone": "eu-1"}, true
	e, err := engine.New(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// serve starts a page that may unlock.
func serve(t *testing.T, eng *engine.Engine, every time.Duration) *httptest.Server {
	t.Helper()
	page := web.New(web.Config{
		Locks: eng, Pattern: "*", Every: every, Log: slog.New(slog.DiscardHandler),
		Unlock: func(ctx context.Context, name, holder string) (int, error) {
			done, err := eng.Mutex(name).ForceUnlock(ctx, engine.IfHolder(holder))
			if done {
				return 1, err
			}
			return 0, err
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	go page.Run(ctx)
	s := httptest.NewServer(page)
	t.Cleanup(func() { cancel(); s.Close() })
	return s
}

// slash is that key. KeyEvent would send a character after it, even if the page has prevented that.
var slash = input.DispatchKeyEvent(input.KeyRawDown).WithKey("/").WithCode("Slash")

func lock(t *testing.T, m engine.Mutex) *engine.Hold {
	t.Helper()
	h, err := m.Lock(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// cells is the text of a lock's row: "" if it has none.
func cells(name string) string {
	return fmt.Sprintf(`([...document.querySelectorAll("#body .cells:not([hidden])")].find((r) => r.children[0].textContent === %q)?.innerText || "")`, name)
}

func TestPage_Locks_AppearWaitAreLostAndUnlocked(t *testing.T) {
	b := browser(t)
	s := redistest.Start(t)
	shop, cron, looker := open(t, s.URL(), "shop"), open(t, s.URL(), "cron"), open(t, s.URL(), "pawl")
	p := serve(t, looker, 100*time.Millisecond)
	b.look("light", 1200, 800)
	b.run(chromedp.Navigate(p.URL))
	b.until("nothing is held", `document.getElementById("none").textContent === "Nothing is held." && !document.getElementById("none").hidden`)
	b.accessible("nothing is held")

	h := lock(t, shop.Mutex("orders:42"))
	b.until("the lock appears, with its holder", cells("orders:42")+`.includes("“shop” on")`)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for range 3 {
		cron.Mutex("orders:42").LockAsync(ctx)
	}
	b.until("they wait", cells("orders:42")+`.trim().endsWith("3")`)

	// Hostile names are texts.
	hostile := `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`
	for _, name := range []string{hostile, "\xff\xfe", "line\nbreak\x1b[31m", strings.Repeat("long ", 12<<10), "right\u202eleft"} {
		lock(t, shop.Mutex(name))
	}
	b.until("the hostile one appears", cells(hostile))
	b.until("invalid UTF-8 appears", cells(`\xff\xfe`))
	if title := eval[string](b, "document.title"); title != "pawl: locks" || eval[int](b, `document.querySelectorAll("main img, main script").length`) != 0 {
		t.Errorf("a name was read as HTML; title %q", title)
	}
	for i := range 40 {
		lock(t, shop.Mutex(fmt.Sprintf("stock:%d", i)))
	}
	lock(t, cron.FairMutex("nightly-report"))
	lock(t, cron.RWMutex("catalogue").Reader())
	b.until("all are there", `document.getElementById("found").textContent === "48 held"`)

	// The keyboard: search, choose, open, back.
	b.run(slash)
	b.until("the search has the focus", `document.activeElement.id === "search"`)
	b.run(chromedp.KeyEvent("ORDERS cron"))
	b.until("nothing matches", `document.getElementById("found").textContent === "0 of 48"`)
	b.run(chromedp.KeyEvent(kb.Escape))
	b.until("all are there again", `document.getElementById("found").textContent === "48 held" && document.activeElement.id === "grid"`)
	b.run(slash)
	b.until("the search has the focus", `document.activeElement.id === "search"`)
	b.run(chromedp.KeyEvent("orders"))
	b.until("one matches", `document.getElementById("found").textContent === "1 of 48"`)
	b.run(chromedp.KeyEvent(kb.ArrowDown))
	b.until("the table has the focus", `document.activeElement.id === "grid"`)
	b.run(chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.Enter))
	b.until("the view of the lock is open", `location.hash.startsWith("#lock/") && document.getElementById("lock-waiters").children.length === 3`)
	b.until("it says what happened", `document.getElementById("lock-events").innerText.includes("waiting: 0 →")`)
	b.accessible("a lock")
	b.shot("lock-light")
	b.look("dark", 1200, 800)
	b.accessible("a lock, dark")
	b.shot("lock-dark")
	b.look("light", 390, 844)
	b.accessible("a lock, on a phone")
	b.shot("lock-phone")
	b.look("light", 1200, 800)

	// Lost: somebody deletes the key. The longest waiter gets it at its next look, which a message makes sooner.
	s.Do("DEL", "orders:42")
	b.until("it was lost", `document.getElementById("lock-events").innerText.includes("held by") && document.getElementById("lock-waiters").children.length === 2 || document.getElementById("lock-events").innerText.includes("free;")`)
	_ = h.Unlock(context.Background())
	s.Do("PUBLISH", "redisson_lock__channel:{orders:42}", "0")
	b.until("a waiter has it", `document.getElementById("lock-holders").innerText.includes("“cron”") && document.getElementById("lock-waiters").children.length === 2`)

	// Unlocked: after a question, and not before.
	b.run(chromedp.Click("#lock-holders button"))
	b.until("it asks", `document.getElementById("confirm").open && document.activeElement.textContent === "Keep it"`)
	b.accessible("the question")
	b.shot("question")
	owner := eval[string](b, `document.querySelector("#lock-holders .id").textContent`)
	b.run(chromedp.KeyEvent(kb.Enter))
	b.until("it is closed", `!document.getElementById("confirm").open`)
	if st, err := looker.Mutex("orders:42").State(ctx); err != nil || st.Holders[0].ID != owner {
		t.Fatalf("%+v, %v: it was not to be taken away", st, err)
	}
	cancel() // nobody waits
	b.until("nobody waits", `document.getElementById("lock-waiters").children.length === 0`)
	b.run(chromedp.Click("#lock-holders button"))
	b.until("it asks", `document.getElementById("confirm").open`)
	b.run(chromedp.Click("#confirm button[value=yes]"))
	b.until("it was taken away", `document.getElementById("lock-what").textContent === "free" && document.getElementById("lock-events").innerText.includes("taken away from")`)
	if st, err := looker.Mutex("orders:42").State(context.Background()); err != nil || st.Locked {
		t.Errorf("%+v, %v", st, err)
	}

	// A permit is found by its name, and given back.
	permits := shop.PermitSemaphore("permits")
	if ok, err := permits.TrySetPermits(context.Background(), 2); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, err := permits.Permits(1).Lock(context.Background()); err != nil {
		t.Fatal(err)
	}
	b.run(chromedp.Evaluate(`location.hash = "name/permits"; 0`, nil))
	b.until("the permit is there", `document.getElementById("lock-what").textContent === "a semaphore, free permits: 1, taken: 1"`)

	// The server is away, and comes back.
	s.Stop()
	b.until("it says so", `document.getElementById("warning").innerText.includes("cannot be asked")`)
	s.Cont()
	b.until("it is over", `document.getElementById("warning").hidden`)

	// The page is cut off, and comes back.
	p.CloseClientConnections()
	lock(t, shop.Mutex("meanwhile"))
	b.until("it is connected again, and has what happened meanwhile", `table.rows.size === 48 && stream.readyState === 1`)

	// The engines.
	b.run(chromedp.KeyEvent(kb.Escape))
	b.until("the table is open, as it was", `!document.getElementById("locks").hidden && document.getElementById("found").textContent === "0 of 48"`)
	b.run(chromedp.KeyEvent(kb.Escape))
	b.until("all are there", `document.getElementById("found").textContent === "48 held"`)
	b.run(chromedp.Click(`#head .cells > :first-child button`)) // the other way round
	b.until("sorted downwards", `document.querySelector("#head [aria-sort=descending]")?.innerText.startsWith("Lock")`)
	b.run(chromedp.Click(`#head .cells > :first-child button`))
	for _, scheme := range []string{"light", "dark"} {
		b.look(scheme, 1200, 800)
		b.until("it is drawn", cells("catalogue"))
		b.accessible("the table, " + scheme)
		b.shot("table-" + scheme)
	}
	b.look("dark", 390, 844)
	b.until("it is drawn", cells("catalogue"))
	b.accessible("the table, on a phone")
	b.shot("table-phone")
	if wide := eval[int](b, "document.documentElement.scrollWidth"); wide > 390 {
		t.Errorf("the page is %d px wide on a phone", wide)
	}
	b.look("light", 1200, 800)
	b.run(chromedp.Click("#nav-engines"))
	b.until("the engines are there", `document.getElementById("engine-list").innerText.includes("“shop”") && document.getElementById("engine-list").innerText.includes("“cron”")`)
	b.accessible("the engines")
	b.shot("engines-light")
	b.look("light", 390, 844)
	b.shot("engines-phone")
}
