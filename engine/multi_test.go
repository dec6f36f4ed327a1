package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/quorum"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// The server of one lock is known to be away: the others are not even tried, or all callers
// that need one would wait until the server is given up.
func TestMultiLock_ServerKnownToBeAway_TakesNothing(t *testing.T) {
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
func TestMultiLock_ServerGoesAway_IsWaitedForFirst(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) { // or others do not answer in time, either
		s2, p, away := behind(t, func(c *Config) { c.CommandTimeout = 300 * time.Millisecond })
		s1 := server(t)
		e, holder := open(t, s1.URL()), open(t, s1.URL())
		held := mustLock(t, holder.Mutex("x"))
		p.Pause(faultproxy.All)
		f := Multi(e.Mutex("x"), away.Mutex("y"), e.Mutex("z")).LockAsync(ctxT(t))
		g, on := f.source.(*severalHold), -1
		eventually(t, "it waits for one", func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			on = slices.IndexFunc(g.Members, func(p quorum.Member) bool { return p.Asked != nil })
			return g.Stage == quorum.Waiting && on >= 0
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
	})
}

// One server is not what it should be, or one key: the error says which lock and what to do,
// and no other is kept.
func TestMultiLock_OneCannotBeTaken_FailsAtOnce(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	replica := server(t)
	behind := open(t, replica.URL())
	replica.Do("REPLICAOF", "127.0.0.1", "1")
	c := redistest.StartCluster(t, false)
	node := c.Nodes()[0]
	alone, whole := open(t, "redis://"+node.Addr()), open(t, c.URL())
	var here, elsewhere string
	for i := 0; here == "" || elsewhere == ""; i++ {
		if name := fmt.Sprint("n", i); c.Owner(c.Slot(name)) == node {
			here = name
		} else {
			elsewhere = name
		}
	}
	for _, one := range c.Nodes() {
		one.Do("CONFIG", "SET", "cluster-require-full-coverage", "no")
		one.Do("CLUSTER", "DELSLOTS", fmt.Sprint(c.Slot("nobody's")))
	}
	s.Do("SET", "string", "of another library")
	for what, one := range map[string]struct {
		locks []Mutex // the last one cannot be taken
		is    error
		text  string
	}{
		"a key of another type":     {[]Mutex{e.Mutex("string")}, ErrWrongType, "WRONGTYPE"},
		"a replica":                 {[]Mutex{behind.Mutex("x")}, ErrUnavailable, "this is a replica"},
		"a node of a cluster":       {[]Mutex{alone.Mutex(here), alone.Mutex(elsewhere)}, ErrUnavailable, "connect with redis+cluster://"},
		"a slot that no server has": {[]Mutex{whole.Mutex(elsewhere), whole.Mutex("nobody's")}, ErrUnavailable, "CLUSTERDOWN"},
	} {
		bad := one.locks[len(one.locks)-1].Name()
		l := Multi(append([]Mutex{e.Mutex("a")}, append(one.locks, e.Mutex("z"))...)...)
		check := func(how string, err error) {
			var refused *NotAcquiredError
			if !errors.As(err, &refused) || refused.Name != bad || !errors.Is(err, one.is) || !hasText(err, one.text) || errors.Is(err, ErrHeld) {
				t.Errorf("%s: %s: %v", what, how, err)
			}
		}
		check("TryLock", errOf(l.TryLock(ctxT(t))))
		ctx, cancel := context.WithCancel(ctxT(t))
		f := l.LockAsync(ctx)
		g := f.source.(*severalHold)
		eventually(t, what+": it was refused", func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.Stage == quorum.Waiting || g.Stage == quorum.Over
		})
		cancel() // some wait until that changes
		check("Lock", errOf(f.Await(ctxT(t))))
		_, err := l.TryDo(ctxT(t), nil)
		check("TryDo", err)
		if !errors.Is(err, ErrNotRun) {
			t.Errorf("%s: TryDo: %v", what, err)
		}
		eventually(t, what+": nothing is kept", func() bool {
			for _, one := range c.Nodes() {
				if one.Do("DBSIZE") != int64(0) {
					return false
				}
			}
			return s.Do("DBSIZE") == int64(1)
		})
	}
	s.Do("DEL", "string")
	clean(t, s, e)
}

// A grant that comes after its lease, once: Lock goes on, as that of one lock does.
func TestMultiLock_OneLateGrant_TriesAgain(t *testing.T) {
	t.Parallel()
	s, p, e := behind(t)
	p.Delay(faultproxy.Carried("EVALSHA"), 150*time.Millisecond, 150*time.Millisecond)
	f := e.Many("x", "y").LockAsync(ctxT(t), Lease(200*time.Millisecond))
	g := f.source.(*severalHold)
	eventually(t, "the first grants are late", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.Stage == quorum.Waiting || g.Stage == quorum.Over
	})
	p.Delay(faultproxy.All, 0, 0)
	h, err := f.Await(ctxT(t))
	if err != nil && !errors.Is(err, ErrGrantTooLate) {
		t.Error(err)
	}
	if err == nil {
		_ = h.Unlock(ctxT(t))
	}
	clean(t, s, e)
}
