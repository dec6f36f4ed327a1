//go:build !race

package engine

import (
	"testing"

	"github.com/pawl-lock/pawl/engine/internal/recovery"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// Every release goes by here, on its way to the caller of Unlock.
func TestRememberingAReleaseMakesNoGarbage(t *testing.T) {
	e := open(t, redistest.StartReplicated(t, 1).URL())
	server, at := e.table.Client.ServerOf(0), e.clock.Now()
	note := func() {
		at = at.Add(recovery.RememberFor / 1000) // a few pages, of which the oldest is used again
		e.table.Recovery.Note(server, 0, recovery.Release{Name: "x", At: at})
	}
	for range 5000 {
		note()
	}
	if n := testing.AllocsPerRun(20_000, note); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if _, n := remembered(e); n > 2000 {
		t.Errorf("%d releases are remembered", n)
	}
}

func BenchmarkRememberingARelease(b *testing.B) {
	e := open(b, redistest.StartReplicated(b, 1).URL())
	server, at := e.table.Client.ServerOf(0), e.clock.Now()
	for b.Loop() {
		at = at.Add(recovery.RememberFor / 500_000) // 100,000 a second
		e.table.Recovery.Note(server, 0, recovery.Release{Name: "x", At: at})
	}
}
