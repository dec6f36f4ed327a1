package multi

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// One MultiLock over a cluster, a deployment with sentinels and a single server.
func TestMultiLockOverSeveralKindsOfDeployment(t *testing.T) {
	t.Parallel()
	sites := []*testkit.Site{testkit.Clustered(redistest.StartCluster(t, false)), testkit.Replicated(redistest.StartSentinel(t)), testkit.Single(testkit.Server(t))}
	multi := func() (l engine.MultiLock, own []*engine.Engine) {
		var locks []engine.Mutex
		for _, at := range sites {
			e := at.Open(t, testkit.LeaseOf(2*time.Second))
			own = append(own, e)
			for i := range 5 {
				locks = append(locks, e.Mutex(fmt.Sprint("n", i)))
			}
		}
		return engine.Multi(locks...), own
	}
	mine, engines := multi()
	theirs, _ := multi()
	h, err := mine.Lock(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
		t.Errorf("%v", err)
	}
	f := theirs.LockAsync(testkit.Ctx(t))
	if err := h.Unlock(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
	h, err = f.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx := h.Context(testkit.Ctx(t))
	if ok, err := engines[1].Mutex("n3").ForceUnlock(testkit.Ctx(t)); !ok || err != nil {
		t.Fatal(ok, err)
	}
	testkit.Receive(t, h.Done())
	var lost *engine.LostError
	if !errors.As(h.Err(), &lost) || lost.Name != "n3" || !errors.Is(context.Cause(ctx), engine.ErrLost) {
		t.Errorf("%v, and the context: %v", h.Err(), context.Cause(ctx))
	}
	if err := h.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
		t.Error(err)
	}
	for _, at := range sites {
		at.Clean(t)
	}
}

// A process that is killed while it holds several locks, or while it takes them, leaves
// nothing that its lease does not end.
func TestLocksOfAKilledProcessExpire(t *testing.T) {
	const lease = 1500 * time.Millisecond
	if args := testkit.PeerArgs(); len(args) == 1 {
		e := testkit.Open(t, args[0], testkit.LeaseOf(lease))
		testkit.MustLockMany(t, e, testkit.Names(100))
		e.Many("busy", "y", "z").LockAsync(testkit.Ctx(t))
		<-testkit.Ctx(t).Done() // until it is killed
		t.Fatal("not killed")
	}
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	busy := testkit.MustLock(t, e.Mutex("busy"))
	p := testkit.StartPeer(t, s.URL())
	testkit.Eventually(t, "it holds its locks", func() bool { return s.Do("EXISTS", "busy", testkit.Names(100)[99]) == int64(2) })
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	h, err := e.LockMany(testkit.Ctx(t), append(testkit.Names(100), "y", "z"))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Unlock(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
	testkit.MustUnlock(t, busy)
	testkit.Eventually(t, "no lock is left", func() bool { return testkit.LockCount(s) == 0 }) // but the place of the killed
}

// What it costs to take and release so many locks at a time.
func BenchmarkLockMany(b *testing.B) {
	for name, start := range map[string]func() *testkit.Site{
		"standalone": func() *testkit.Site { return testkit.Single(testkit.Server(b)) },
		"cluster":    func() *testkit.Site { return testkit.Clustered(redistest.StartCluster(b, false)) },
	} {
		b.Run(name, func(b *testing.B) {
			e := start().Open(b)
			for _, n := range []int{1, 10, 100, 500} {
				names := testkit.Names(n)
				b.Run(fmt.Sprint(n), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						h, err := e.LockMany(context.Background(), names)
						if err != nil {
							b.Fatal(err)
						}
						if err := h.Unlock(context.Background()); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		})
	}
}
