package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/gathering"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// everyMultiLock calls every form of acquiring and returns the errors by name.
func everyMultiLock(ctx context.Context, l MultiLock, opts ...Option) map[string]error {
	never := func(context.Context, *Hold) error { panic("ran without the locks") }
	return map[string]error{
		"Lock":         errOf(l.Lock(ctx, opts...)),
		"TryLock":      errOf(l.TryLock(ctx, opts...)),
		"LockAsync":    errOf(l.LockAsync(ctx, opts...).Await(ctx)),
		"TryLockAsync": errOf(l.TryLockAsync(ctx, opts...).Await(ctx)),
		"Do":           l.Do(ctx, never, opts...),
		"TryDo":        errOf(l.TryDo(ctx, never, opts...)),
	}
}

// What cannot be: nothing is sent.
func TestMultiLockRefusesNonsense(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	mapped := open(t, s.URL(), func(c *Config) { c.NameMapper = strings.ToLower })
	cluster := redistest.StartCluster(t, false)
	clustered := open(t, cluster.URL())
	scripts := func() (n int64) { // not commands: a connection that is silent is pinged
		for _, one := range append(cluster.Nodes(), s) {
			n += one.CommandStats()["evalsha"]
		}
		return n
	}
	before := scripts()
	x := e.Mutex("x")
	for text, c := range map[string]struct {
		l    MultiLock
		opts []Option
	}{
		"no locks":               {l: e.Many()},
		"zero MultiLock":         {},
		"zero Mutex":             {l: Multi(x, Mutex{})},
		`that has "x" twice`:     {l: Multi(x, e.Mutex("y"), x)},
		`"X" and "x"`:            {l: mapped.Many("x", "y", "X")},
		"kinds mutex and spin":   {l: Multi(x, e.SpinMutex("y"))},
		"kinds fenced and mutex": {l: Multi(e.FencedMutex("y"), x)},
		"must not be empty":      {l: e.Many("x", "")},
		"at most 65536 bytes":    {l: e.Many("x", strings.Repeat("y", 1<<20))},
		"braces":                 {l: clustered.Many("x", "a{b")},
		"of 100000 locks":        {l: e.Many(someNames(100_000)...)},
		"at most 10000":          {l: e.Many(someNames(10_001)...)},
		"MinHold":                {l: Multi(x), opts: []Option{MinHold(time.Second)}},
		"Lease and MaxHold":      {l: Multi(x), opts: []Option{Lease(time.Second), MaxHold(time.Second)}},
		"nil Option":             {l: Multi(x), opts: []Option{nil}},
	} {
		errs := everyMultiLock(ctxT(t), c.l, c.opts...)
		wantInvalid(t, errs, text)
		for what, err := range errs {
			if len(err.Error()) > 1000 {
				t.Errorf("%s: %s: an error of %d bytes", text, what, len(err.Error()))
			}
		}
	}
	if n := scripts() - before; n != 0 {
		t.Errorf("%d scripts were sent", n)
	}
	h := mustLockMany(t, e, append(someNames(10_000), someNames(10_000)...)) // so many can be
	if err := h.Unlock(ctxT(t)); err != nil {
		t.Error(err)
	}
	clean(t, s, e)
}

// One server is not what it should be, or one key: the error says which lock and what to do,
// and no other is kept.
func TestMultiLockWithOneThatCannotBeTaken(t *testing.T) {
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
		g := f.source.(*gatherer)
		eventually(t, what+": it was refused", func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			v := g.all.View()
			return hasText(v.Last.Why, one.text) || v.Stage == gathering.Over
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
