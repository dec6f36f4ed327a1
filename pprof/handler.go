package pprof

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"runtime"
	rpprof "runtime/pprof"
	"runtime/trace"
	"strconv"
	"strings"
	"time"
)

const (
	cpuSeconds   = 30
	traceSeconds = 1
	maxSeconds   = 300
	// writeSlack is the time to send a profile once it is there.
	writeSlack = time.Minute
)

// Handler serves the profiles of the process, and what stats returns as JSON (stats may
// be nil). Mount it under any path that ends with a slash. Only operators should be able
// to reach it: profiles show what a program does.
//
//	mux.Handle("/debug/pawl/", pawlpprof.Handler(func() any { return eng.Stats() }))
//
// Below that path it serves an index, profile?seconds=30 (CPU), trace?seconds=1, stats,
// and heap, block, mutex, goroutine and the other profiles of runtime/pprof. debug=1 asks
// for text, and gc=1 has heap collect garbage first. A CPU profile or trace ends early if
// its client goes away. While another one runs, the answer is 409. The block and mutex
// profiles are empty unless the program sets their rates (runtime.SetBlockProfileRate,
// runtime.SetMutexProfileFraction).
//
// Metrics and traces are plugins: see docs/observability.md.
func Handler(stats func() any) http.Handler { return &handler{stats} }

type handler struct{ stats func() any }

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	// The last element alone, so that it works with and without http.StripPrefix.
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	switch name {
	case "":
		h.serveIndex(w)
	case "stats":
		h.serveStats(w, r)
	case "profile":
		serveTimed(w, r, "cpu.pprof", cpuSeconds, func() error { return rpprof.StartCPUProfile(w) }, rpprof.StopCPUProfile)
	case "trace":
		serveTimed(w, r, "trace.out", traceSeconds, func() error { return trace.Start(w) }, trace.Stop)
	default:
		serveProfile(w, r, name)
	}
}

var index = template.Must(template.New("index").Parse(`<!DOCTYPE html>
<title>Pawl: profiles</title>
<table>
{{range .Profiles}}<tr><td>{{.Count}}</td><td><a href="{{.Name}}?debug=1">{{.Name}}</a></td></tr>
{{end}}</table>
<p><a href="profile?seconds=30">profile</a> (CPU, 30 s), <a href="trace?seconds=1">trace</a> (1 s), <a href="goroutine?debug=2">all stacks</a>{{if .Stats}}, <a href="stats">stats</a>{{end}}</p>
`))

func (h *handler) serveIndex(w http.ResponseWriter) {
	var page bytes.Buffer
	if err := index.Execute(&page, map[string]any{"Profiles": rpprof.Profiles(), "Stats": h.stats != nil}); err != nil {
		fail(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(page.Bytes())
}

func (h *handler) serveStats(w http.ResponseWriter, r *http.Request) {
	if h.stats == nil {
		http.NotFound(w, r)
		return
	}
	text, err := json.MarshalIndent(h.stats(), "", "  ")
	if err != nil {
		fail(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n'))
}

func serveProfile(w http.ResponseWriter, r *http.Request, name string) {
	p := rpprof.Lookup(name)
	if p == nil {
		http.NotFound(w, r)
		return
	}
	debug := 0
	if s := r.FormValue("debug"); s != "" {
		var err error
		if debug, err = strconv.Atoi(s); err != nil || debug < 0 {
			fail(w, "debug must be a number", http.StatusBadRequest)
			return
		}
	}
	if name == "heap" && r.FormValue("gc") != "" && r.FormValue("gc") != "0" {
		runtime.GC()
	}
	if debug > 0 {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	} else {
		asFile(w, name+".pprof")
	}
	_ = p.WriteTo(w, debug) // fails only with the connection
}

// serveTimed records from start to stop, for ?seconds or until the client leaves.
func serveTimed(w http.ResponseWriter, r *http.Request, file string, seconds float64, start func() error, stop func()) {
	if s := r.FormValue("seconds"); s != "" {
		var err error
		if seconds, err = strconv.ParseFloat(s, 64); err != nil || math.IsNaN(seconds) || seconds <= 0 || seconds > maxSeconds {
			fail(w, fmt.Sprintf("seconds must be above 0 and at most %d", maxSeconds), http.StatusBadRequest)
			return
		}
	}
	d := time.Duration(seconds * float64(time.Second))
	if r.Method == http.MethodHead {
		asFile(w, file)
		return
	}
	// The server's WriteTimeout may be shorter; if it cannot be changed, so be it.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d + writeSlack))
	asFile(w, file)
	if err := start(); err != nil {
		fail(w, "one is running already: "+err.Error(), http.StatusConflict)
		return
	}
	defer stop()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
}

func asFile(w http.ResponseWriter, name string) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
}

func fail(w http.ResponseWriter, text string, code int) {
	w.Header().Del("Content-Disposition")
	http.Error(w, text, code)
}
