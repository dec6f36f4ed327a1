// Package pprof helps to profile programs that use Pawl. Import it as pawlpprof,
// because the standard library has two packages named pprof.
//
// It serves and writes what runtime/pprof and runtime/trace provide. It does not
// import net/http/pprof, which registers itself on http.DefaultServeMux. All
// long-lived goroutines of Pawl carry a role label, so
//
//	go tool pprof -tagfocus role=wheel-worker cpu.pprof
//
// shows one part only.
package pprof
