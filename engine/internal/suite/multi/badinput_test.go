package multi

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// everyMultiLock calls every form of acquiring and returns the errors by name.
func everyMultiLock(ctx context.Context, l engine.MultiLock, opts ...engine.Option) map[string]error {
	never := func(context.Context, *engine.Hold) error { panic("ran without the locks") }
	return map[string]error{
		"Lock":         testkit.ErrOf(l.Lock(ctx, opts...)),
		"TryLock":      testkit.ErrOf(l.TryLock(ctx, opts...)),
		"LockAsync":    testkit.ErrOf(l.LockAsync(ctx, opts...).Await(ctx)),
		"TryLockAsync": testkit.ErrOf(l.TryLockAsync(ctx, opts...).Await(ctx)),
		"Do":           l.Do(ctx, never, opts...),
		"TryDo":        testkit.ErrOf(l.TryDo(ctx, never, opts...)),
	}
}

// What cannot be: nothing is sent.
func TestMultiLock_BadArguments_AreRefused(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	mapped := testkit.Open(t, s.URL(), func(c *engine.Config) { c.NameMapper = strings.ToLower })
	cluster := redistest.StartCluster(t, false)
	clustered := testkit.Open(t, cluster.URL())
	scripts := func() (n int64) { // not commands: a connection that is silent is pinged
		for _, one := range append(cluster.Nodes(), s) {
			n += one.CommandStats()["evalsha"]
		}
		return n
	}
	before := scripts()
	x := e.Mutex("x")
	for text, c := range map[string]struct {
		l    engine.MultiLock
		opts []engine.Option
	}{
		"no locks":               {l: e.Many()},
		"zero MultiLock":         {},
		"zero Mutex":             {l: engine.Multi(x, engine.Mutex{})},
		`that has "x" twice`:     {l: engine.Multi(x, e.Mutex("y"), x)},
		`"X" and "x"`:            {l: mapped.Many("x", "y", "X")},
		"kinds mutex and spin":   {l: engine.Multi(x, e.SpinMutex("y"))},
		"kinds fenced and mutex": {l: engine.Multi(e.FencedMutex("y"), x)},
		"must not be empty":      {l: e.Many("x", "")},
		"at most 65536 bytes":    {l: e.Many("x", strings.Repeat("y", 1<<20))},
		"braces":                 {l: clustered.Many("x", "a{b")},
		"of 100000 locks":        {l: e.Many(testkit.Names(100_000)...)},
		"at most 10000":          {l: e.Many(testkit.Names(10_001)...)},
		"MinHold":                {l: engine.Multi(x), opts: []engine.Option{engine.MinHold(time.Second)}},
		"Lease and MaxHold":      {l: engine.Multi(x), opts: []engine.Option{engine.Lease(time.Second), engine.MaxHold(time.Second)}},
		"nil Option":             {l: engine.Multi(x), opts: []engine.Option{nil}},
	} {
		errs := everyMultiLock(testkit.Ctx(t), c.l, c.opts...)
		testkit.WantInvalid(t, errs, text)
		for what, err := range errs {
			if len(err.Error()) > 1000 {
				t.Errorf("%s: %s: an error of %d bytes", text, what, len(err.Error()))
			}
		}
	}
	if n := scripts() - before; n != 0 {
		t.Errorf("%d scripts were sent", n)
	}
	h := testkit.MustLockMany(t, e, append(testkit.Names(10_000), testkit.Names(10_000)...)) // so many can be
	if err := h.Unlock(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
	testkit.Clean(t, s, e)
}
