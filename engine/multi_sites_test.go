package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/redistest"
)

// One MultiLock over a cluster, a deployment with sentinels and a single server.
func TestMultiLockOverSeveralKindsOfDeployment(t *testing.T) {
	t.Parallel()
	sites := []*site{clustered(redistest.StartCluster(t, false)), replicated(redistest.StartSentinel(t)), single(server(t))}
	multi := func() (l MultiLock, own []*Engine) {
		var locks []Mutex
		for _, at := range sites {
			e := at.open(t, leaseOf(2*time.Second))
			own = append(own, e)
			for i := range 5 {
				locks = append(locks, e.Mutex(fmt.Sprint("n", i)))
			}
		}
		return Multi(locks...), own
	}
	mine, engines := multi()
	theirs, _ := multi()
	h, err := mine.Lock(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.TryLock(ctxT(t)); !errors.Is(err, ErrHeld) {
		t.Errorf("%v", err)
	}
	f := theirs.LockAsync(ctxT(t))
	if err := h.Unlock(ctxT(t)); err != nil {
		t.Error(err)
	}
	h, err = f.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx := h.Context(ctxT(t))
	if ok, err := engines[1].Mutex("n3").ForceUnlock(ctxT(t)); !ok || err != nil {
		t.Fatal(ok, err)
	}
	receive(t, h.Done())
	var lost *LostError
	if !errors.As(h.Err(), &lost) || lost.Name != "n3" || !errors.Is(context.Cause(ctx), ErrLost) {
		t.Errorf("%v, and the context: %v", h.Err(), context.Cause(ctx))
	}
	if err := h.Unlock(ctxT(t)); !errors.Is(err, ErrLost) {
		t.Error(err)
	}
	for _, at := range sites {
		at.clean(t)
	}
}

// A process that is killed while it holds several locks, or while it takes them, leaves
// nothing that its lease does not end.
func TestLocksOfAKilledProcessExpire(t *testing.T) {
	const lease = 1500 * time.Millisecond
	if args := peerArgs(); len(args) == 1 {
		e := open(t, args[0], leaseOf(lease))
		mustLockMany(t, e, someNames(100))
		e.Many("busy", "y", "z").LockAsync(ctxT(t))
		<-ctxT(t).Done() // until it is killed
		t.Fatal("not killed")
	}
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	busy := mustLock(t, e.Mutex("busy"))
	p := startPeer(t, s.URL())
	eventually(t, "it holds its locks", func() bool { return s.Do("EXISTS", "busy", someNames(100)[99]) == int64(2) })
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	h, err := e.LockMany(ctxT(t), append(someNames(100), "y", "z"))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Unlock(ctxT(t)); err != nil {
		t.Error(err)
	}
	mustUnlock(t, busy)
	clean(t, s, e)
}

// What it costs to take and release so many locks at a time.
func BenchmarkLockMany(b *testing.B) {
	for name, start := range map[string]func() *site{
		"standalone": func() *site { return single(server(b)) },
		"cluster":    func() *site { return clustered(redistest.StartCluster(b, false)) },
	} {
		b.Run(name, func(b *testing.B) {
			e := start().open(b)
			for _, n := range []int{1, 10, 100, 500} {
				names := someNames(n)
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
