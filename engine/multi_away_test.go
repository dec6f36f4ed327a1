package engine

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/gathering"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// The server of one lock is known to be away: the others are not even tried, or all callers
// that need one would wait until the server is given up.
func TestMultiLockTakesNothingWhileAServerIsKnownToBeAway(t *testing.T) {
	t.Parallel()
	s2, p, away := behind(t)
	s1 := server(t)
	e, holder := open(t, s1.URL()), open(t, s1.URL())
	y := away.Mutex("y")
	p.Down()
	eventually(t, "the lane is down", func() bool { return !away.table.Client.LaneOf(y.route).Up() })
	f := Multi(e.Mutex("x"), y).LockAsync(ctxT(t))
	if n := away.Stats().Waiting; n != 1 {
		t.Errorf("%d wait for y", n)
	}
	mustUnlock(t, mustLock(t, holder.Mutex("x")))
	if n := e.Stats().Acquired; n != 0 {
		t.Errorf("x was taken %d times", n)
	}
	p.Up()
	h, err := f.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Unlock(ctxT(t)); err != nil {
		t.Error(err)
	}
	clean(t, s1, e, holder)
	clean(t, s2, away)
}

// One lock is held, and the server of another does not answer. To wait for the held one would
// mean to keep it until that server is given up, and so again and again:
//
//	x is held, y silent      wait for x
//	x granted                kept while y is tried
//	x given back, z is held, y silent      wait for z
func TestMultiLockWaitsForTheServerThatIsAwayFirst(t *testing.T) {
	t.Parallel()
	s2, p, away := behind(t, func(c *Config) { c.CommandTimeout = 300 * time.Millisecond })
	s1 := server(t)
	e, holder := open(t, s1.URL()), open(t, s1.URL())
	held := mustLock(t, holder.Mutex("x"))
	p.Pause(faultproxy.All)
	f := Multi(e.Mutex("x"), away.Mutex("y"), e.Mutex("z")).LockAsync(ctxT(t))
	g, on := f.source.(*gatherer), -1
	eventually(t, "it waits for one", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		on = g.all.View().Last.At
		return g.all.View().Stage == gathering.Blocked
	})
	if on != 1 {
		t.Errorf("it waits for lock %d", on)
	}
	mustUnlock(t, held)
	mustUnlock(t, mustLock(t, holder.Mutex("x")))
	mustUnlock(t, mustLock(t, holder.Mutex("z")))
	if st := e.Stats(); st.Acquired != 1 || st.Held != 0 { // z, by the first round
		t.Errorf("acquired %d, held %d", st.Acquired, st.Held)
	}
	p.Resume()
	h, err := f.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Unlock(ctxT(t)); err != nil {
		t.Error(err)
	}
	clean(t, s1, e, holder)
	clean(t, s2, away)
}
