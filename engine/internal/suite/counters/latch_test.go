package counters

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

func TestLatch_CountReachesZero_Opens(t *testing.T) {
	t.Parallel()
	srv := testkit.Server(t)
	a, b := testkit.Open(t, srv.URL()), testkit.Open(t, srv.URL())
	ctx := testkit.Ctx(t)
	l := a.Latch("l")
	if err := l.Await(ctx); err != nil {
		t.Fatalf("it is open: %v", err)
	}
	if set, err := l.TrySetCount(ctx, 2); !set || err != nil {
		t.Fatal(set, err)
	}
	if set, err := l.TrySetCount(ctx, 5); set || err != nil {
		t.Error(set, err)
	}
	var futures []*engine.Future[struct{}]
	for range 100 {
		futures = append(futures, l.AwaitAsync(ctx), b.Latch("l").AwaitAsync(ctx))
	}
	if err := l.Await(ctx, engine.Wait(2*time.Second)); !errors.Is(err, engine.ErrPending) || err.Error() != `engine: latch "l": Wait is over: still pending` {
		t.Error(err)
	}
	if err := b.Latch("l").CountDown(ctx); err != nil {
		t.Fatal(err)
	}
	if n, err := l.Count(ctx); n != 1 || err != nil {
		t.Error(n, err)
	}
	if _, err := futures[0].Result(); err != engine.ErrPending {
		t.Error(err)
	}
	testkit.Eventually(t, "both listen", func() bool { return a.Stats().Channels == 1 && b.Stats().Channels == 1 })
	if err := l.CountDown(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := engine.AwaitAll(testkit.Within(t, 5*time.Second), futures...); err != nil {
		t.Fatal(err)
	}
	for range 2 { // below zero is harmless
		if err := l.CountDown(ctx); err != nil {
			t.Error(err)
		}
	}
	if n, err := l.Count(ctx); n != 0 || err != nil {
		t.Error(n, err)
	}
	if v := srv.Do("EXISTS", "l"); v != int64(0) {
		t.Errorf("the key is there: %v", v)
	}
	testkit.CleanButMarks(t, srv, a, b)
}

// A count of 0 is a key, as with Redisson.
func TestLatch_CountOfZero_IsOpen(t *testing.T) {
	t.Parallel()
	srv := testkit.Server(t)
	l := testkit.Open(t, srv.URL()).Latch("l")
	for i, x := range []struct {
		n   int
		set bool
	}{{0, true}, {5, false}} {
		if set, err := l.TrySetCount(testkit.Ctx(t), x.n); set != x.set || err != nil {
			t.Errorf("%d: %v, %v", i, set, err)
		}
		if err := l.Await(testkit.Ctx(t)); err != nil {
			t.Error(err)
		}
	}
	if err := l.CountDown(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
	if set, err := l.TrySetCount(testkit.Ctx(t), 5); !set || err != nil {
		t.Error(set, err)
	}
}

func TestLatch_Deleted_IsNoticed(t *testing.T) {
	t.Parallel()
	srv := testkit.Server(t)
	e := testkit.Open(t, srv.URL())
	l := e.Latch("l")
	if _, err := l.TrySetCount(testkit.Ctx(t), 2); err != nil {
		t.Fatal(err)
	}
	f := l.AwaitAsync(context.Background())
	testkit.Eventually(t, "it listens", func() bool { return e.Stats().Channels == 1 })
	srv.Do("DEL", "l")
	if _, err := f.Await(testkit.Ctx(t)); err != nil { // nobody tells: it looks
		t.Fatal(err)
	}
}

// A server that refuses writes answers looks. It is asked for the write no more often for that.
func TestLatch_RefusedCountDownBesideAnAwait_BacksOff(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	l := e.Latch("l")
	if _, err := l.TrySetCount(testkit.Ctx(t), 3); err != nil {
		t.Fatal(err)
	}
	waits := l.AwaitAsync(testkit.Ctx(t))
	defer waits.Abandon()
	s.Do("CONFIG", "SET", "min-replicas-to-write", "1")
	before := s.CommandStats()["evalsha"]
	ctx, cancel := context.WithTimeout(testkit.Ctx(t), 3*time.Second)
	defer cancel()
	if err := l.CountDown(ctx); err == nil {
		t.Fatal("it is not refused")
	}
	if n := s.CommandStats()["evalsha"] - before; n > 100 {
		t.Errorf("%d scripts in 3 s", n)
	}
	s.Do("CONFIG", "SET", "min-replicas-to-write", "0")
}
