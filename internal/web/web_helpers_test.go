package web_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/web"
)

// period is short, so that tests are.
const period = 50 * time.Millisecond

// open starts an engine that answers questions.
func open(t testing.TB, url string) *engine.Engine {
	t.Helper()
	cfg, err := engine.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Service = "shop"
	e, err := engine.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// serve starts a page.
func serve(t testing.TB, locks web.Locks, change ...func(*web.Config)) *httptest.Server {
	t.Helper()
	cfg := web.Config{Locks: locks, Pattern: "*", Every: period, Log: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&cfg)
	}
	page := web.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		page.Run(ctx)
	}()
	s := httptest.NewServer(page)
	t.Cleanup(func() {
		cancel()
		<-ended
		s.Close()
		s.Client().CloseIdleConnections()
	})
	return s
}

// row is a row as the page gets it.
type row struct {
	ID      string `json:"i"`
	Name    string `json:"n"`
	Kind    string `json:"k"`
	Holders []struct {
		ID, Host, Service string
		PID               int
	} `json:"h"`
	Since   int64 `json:"s"`
	AtLeast bool  `json:"a"`
	Lease   int64 `json:"l"`
	Waiting int   `json:"w"`
}

// stream is a page's stream, and the state that the page makes of it.
type stream struct {
	t      testing.TB
	body   io.Closer
	lines  *bufio.Reader
	rows   map[string]row
	status map[string]any
	last   string // id of the last event
	resets int
	reset  map[string]row
	bytes  int
}

// follow opens a stream that has seen the event of an id.
func follow(t testing.TB, s *httptest.Server, last string) *stream {
	t.Helper()
	ctx, cancel := cputime.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	req, _ := http.NewRequestWithContext(ctx, "GET", s.URL+"/api/events", nil)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	res, err := s.Client().Do(req)
	if err != nil || res.StatusCode != 200 {
		t.Fatal(res, err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return &stream{t: t, body: res.Body, lines: bufio.NewReader(res.Body), rows: make(map[string]row), last: last}
}

// event reads one event, and applies it as the page does.
func (s *stream) event() (kind string) {
	s.t.Helper()
	id, data := "", ""
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			s.t.Fatalf("the stream ended: %v", err)
		}
		s.bytes += len(line)
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "id":
			id = value
		case "event":
			kind = value
		case "data":
			data = value
		case "":
			s.apply(kind, data)
			if id != "" {
				s.last = id
			}
			return kind
		}
	}
}

func (s *stream) apply(kind, data string) {
	s.t.Helper()
	switch kind {
	case "reset":
		s.resets++
		s.reset = make(map[string]row)
	case "rows":
		var d struct {
			Set  []row
			Gone []string
		}
		s.decode(data, &d)
		into := s.rows
		if s.reset != nil {
			into = s.reset
		}
		for _, r := range d.Set {
			into[r.ID] = r
		}
		for _, id := range d.Gone {
			delete(into, id)
		}
	case "status":
		if s.reset != nil {
			s.rows, s.reset = s.reset, nil
		}
		s.status = nil
		s.decode(data, &s.status)
	default:
		s.t.Fatalf("event %q", kind)
	}
}

func (s *stream) decode(data string, into any) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(data), into); err != nil {
		s.t.Fatalf("%v: %.200q", err, data)
	}
}

// until reads until the rows are as wanted.
func (s *stream) until(what string, is func(map[string]row) bool) {
	s.t.Helper()
	for began := cputime.Now(); ; {
		if s.event() == "status" && is(s.named()) {
			return
		}
		if began.Elapsed() > 20*time.Second {
			s.t.Fatalf("not in time: %s; rows %v, status %v", what, s.rows, s.status)
		}
	}
}

// named are the rows by their names.
func (s *stream) named() map[string]row {
	all := make(map[string]row)
	for r := range maps.Values(s.rows) {
		all[r.Name] = r
	}
	return all
}

// get asks for something, with headers "Key: value"; Host is one of them.
func get(t testing.TB, s *httptest.Server, path string, headers ...string) (code int, body string, h http.Header) {
	t.Helper()
	return send(t, s, "GET", path, "", headers...)
}

func send(t testing.TB, s *httptest.Server, method, path, body string, headers ...string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		key, value, _ := strings.Cut(h, ": ")
		if key == "Host" {
			req.Host = value
		}
		req.Header.Set(key, value)
	}
	res, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text), res.Header
}

// view is the view of one lock.
type view struct {
	ID, Name, Kind, Error string
	Locked                bool
	Waiting               int
	Holders               []struct{ ID, Raw string }
	Waiters               []struct{ Kind string }
	Events                []struct {
		What, Holder string
		From, To     int
	}
}

func inspect(t testing.TB, s *httptest.Server, query string) (v view) {
	t.Helper()
	code, body, _ := get(t, s, "/api/lock?"+query)
	if code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for began := cputime.Now(); !is(); time.Sleep(5 * time.Millisecond) {
		if began.Elapsed() > 20*time.Second {
			t.Fatal("not in time: ", what)
		}
	}
}
