// Package pprof helps to profile programs that use Pawl. Import it as pawlpprof:
// the name is taken.
//
// It serves and writes what runtime/pprof and runtime/trace know, and never
// imports net/http/pprof, which registers itself on http.DefaultServeMux. All
// long-lived goroutines of Pawl carry a role label, so
//
//	go tool pprof -tagfocus role=wheel-worker cpu.pprof
//
// shows one part alone.
package pprof
