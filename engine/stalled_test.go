package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/machine"
)

// Nothing is held and nobody waits any more: there is nothing to wait for.
func TestStalledNameHoldsUpNeitherCloseNorShutdown(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(*Engine) error{
		"Close":    (*Engine).Close,
		"Shutdown": func(e *Engine) error { return e.Shutdown(within(t, 3*time.Second)) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			for range 10 {
				if stalledNameIsGivenUp(t, end) {
					return
				}
			}
			t.Error("each time a try was out when the server died")
		})
	}
}

// stalledNameIsGivenUp ends an engine whose only name is stalled. It reports false if a
// try was out when the server died: then its outcome is waited for, and rightly so.
func stalledNameIsGivenUp(t *testing.T, end func(*Engine) error) bool {
	t.Helper()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL(), func(c *Config) { c.CloseTimeout = 100 * time.Millisecond })
	mustLock(t, other.Mutex("x"))
	f := e.Mutex("x").LockAsync(ctxT(t))
	eventually(t, "it listens, and was refused once more after that", func() bool { return e.sleepsOnMessagesForTest("x") })
	s.Kill()
	waits := false
	eventually(t, "its name is stalled, and recovery has given it up", func() bool {
		for _, l := range e.table.Recovery.View().Lanes {
			if waits = len(l.Urgent) > 0; waits || len(l.Tries) == 1 && !l.Kicked {
				return true
			}
		}
		return false
	})
	if waits {
		_ = e.Close()
		return false
	}
	if err := end(e); err != nil {
		t.Error(err)
	}
	if _, err := f.Await(context.Background()); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	return true
}

// sleepsOnMessagesForTest reports whether the head of a name sleeps, and the server has
// confirmed its subscription.
func (e *Engine) sleepsOnMessagesForTest(name string) bool {
	m := e.Mutex(name)
	sh := e.table.Shard(m.route)
	sh.Lock()
	defer sh.Unlock()
	r := sh.Find(m.key)
	if r == nil {
		return false
	}
	v := r.View()
	return v.Asleep && v.Confirmed && v.What == machine.Nothing
}
