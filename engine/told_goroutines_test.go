//go:build !race

package engine

import (
	"context"
	"runtime"
	"testing"

	"github.com/pawl-lock/pawl/engine/internal/script"
)

// Not parallel: it counts the goroutines of the whole process.
//
// A hold may have any number of contexts. When it ends on an event loop, that costs one
// goroutine for all of them, and none of those that would forget each.
func TestManyContextsEndInOneGoroutine(t *testing.T) {
	const n = 10_000
	s := server(t)
	e := open(t, s.URL())
	h := mustLock(t, e.Mutex("x"))
	contexts := make([]context.Context, n)
	for i := range contexts {
		contexts[i] = h.Context(context.Background())
	}
	s.Do("DEL", "x")
	done, idle, peak := h.Done(), runtime.NumGoroutine(), 0
	oneOf(h).Subject().Gone(script.Gone) // as its renewal does
	for ended := false; !ended; {
		peak = max(peak, runtime.NumGoroutine()-idle)
		select {
		case <-done:
			ended = true
		default:
		}
	}
	if k := alive(contexts); k > 0 {
		t.Errorf("Done is closed and %d of %d contexts are alive", k, n)
	}
	t.Logf("%d goroutines more while %d contexts ended", peak, n)
	if peak > 5 {
		t.Errorf("%d goroutines more while %d contexts ended, want one", peak, n)
	}
}
