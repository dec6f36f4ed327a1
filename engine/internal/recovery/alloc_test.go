//go:build !race

package recovery

import (
	"testing"
	"time"
)

// Every release goes by here, on its way to the caller of Unlock.
func TestNotingAReleaseMakesNoGarbage(t *testing.T) {
	l := newLab(t, 10*time.Second)
	at := l.clock.Now()
	note := func() {
		at = at.Add(10 * time.Millisecond) // a few pages, of which the oldest is used again
		l.v.Note(1, 'a', Release{Name: "a", At: at})
	}
	for range 5000 {
		note()
	}
	if n := testing.AllocsPerRun(20_000, note); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
