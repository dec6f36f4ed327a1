package redisson

import (
	"sync/atomic"
	"testing"

	"github.com/pawl-lock/pawl/internal/redistest"
)

// section is what a lock or permits guard: there is room for so much in it at a time.
type section struct {
	s              *redistest.Server
	room           int64
	inside, passed atomic.Int64
}

// pass takes so much of the room for as long as a few commands of the server take: whoever should
// be kept out has time to come in, and is seen.
func (x *section) pass(t testing.TB, takes int64) {
	t.Helper()
	if n := x.inside.Add(takes); n > x.room {
		t.Errorf("%d are inside, and there is room for %d", n, x.room)
	}
	for range 3 {
		if _, err := x.s.Process.Do("PING"); err != nil {
			t.Error(err)
		}
	}
	x.inside.Add(-takes)
	x.passed.Add(1)
}
