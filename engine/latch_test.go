package engine

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestLatchOpensAtZero(t *testing.T) {
	t.Parallel()
	srv := server(t)
	a, b := open(t, srv.URL()), open(t, srv.URL())
	ctx := ctxT(t)
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
	var futures []*Future[struct{}]
	for range 100 {
		futures = append(futures, l.AwaitAsync(ctx), b.Latch("l").AwaitAsync(ctx))
	}
	if err := l.Await(ctx, Wait(2*time.Second)); !errors.Is(err, ErrPending) || err.Error() != `engine: latch "l": Wait is over: still pending` {
		t.Error(err)
	}
	if err := b.Latch("l").CountDown(ctx); err != nil {
		t.Fatal(err)
	}
	if n, err := l.Count(ctx); n != 1 || err != nil {
		t.Error(n, err)
	}
	if _, err := futures[0].Result(); err != ErrPending {
		t.Error(err)
	}
	eventually(t, "both listen", func() bool { return a.Stats().Channels == 1 && b.Stats().Channels == 1 })
	if err := l.CountDown(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := AwaitAll(within(t, 5*time.Second), futures...); err != nil {
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
	cleanButMarks(t, srv, a, b)
}

// A count of 0 is a key, as with Redisson.
func TestLatchWithACountOfZero(t *testing.T) {
	t.Parallel()
	srv := server(t)
	l := open(t, srv.URL()).Latch("l")
	for i, x := range []struct {
		n   int
		set bool
	}{{0, true}, {5, false}} {
		if set, err := l.TrySetCount(ctxT(t), x.n); set != x.set || err != nil {
			t.Errorf("%d: %v, %v", i, set, err)
		}
		if err := l.Await(ctxT(t)); err != nil {
			t.Error(err)
		}
	}
	if err := l.CountDown(ctxT(t)); err != nil {
		t.Error(err)
	}
	if set, err := l.TrySetCount(ctxT(t), 5); !set || err != nil {
		t.Error(set, err)
	}
}

func TestLatchThatIsDeletedIsNoticed(t *testing.T) {
	t.Parallel()
	srv := server(t)
	e := open(t, srv.URL())
	l := e.Latch("l")
	if _, err := l.TrySetCount(ctxT(t), 2); err != nil {
		t.Fatal(err)
	}
	f := l.AwaitAsync(context.Background())
	eventually(t, "it listens", func() bool { return e.Stats().Channels == 1 })
	srv.Do("DEL", "l")
	if _, err := f.Await(ctxT(t)); err != nil { // nobody tells: it looks
		t.Fatal(err)
	}
}

// A worker holds a lock, and its last act is to count down: nobody may be left to wait for that.
func TestALatchIsCountedDownDuringAShutdown(t *testing.T) {
	t.Parallel()
	s := server(t)
	worker, other := open(t, s.URL()), open(t, s.URL())
	latch := other.Latch("l")
	if _, err := latch.TrySetCount(ctxT(t), 1); err != nil {
		t.Fatal(err)
	}
	waits := latch.AwaitAsync(ctxT(t))
	h := mustLock(t, worker.Mutex("x"))
	shut := make(chan error, 1)
	go func() { shut <- worker.Shutdown(ctxT(t)) }()
	eventually(t, "it shuts down", Closing(worker))
	if err := worker.Latch("l").CountDown(ctxT(t)); err != nil {
		t.Error(err)
	}
	if _, err := worker.Latch("l").Count(ctxT(t)); !errors.Is(err, ErrClosed) {
		t.Errorf("a look: %v", err)
	}
	mustUnlock(t, h)
	if err := receive(t, shut); err != nil {
		t.Error(err)
	}
	if _, err := waits.Await(ctxT(t)); err != nil {
		t.Error(err)
	}
	if err := worker.Latch("l").CountDown(ctxT(t)); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A server that refuses writes answers looks. It is asked for the write no more often for that.
func TestARefusedCountDownBacksOffBesideAnAwait(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	l := e.Latch("l")
	if _, err := l.TrySetCount(ctxT(t), 3); err != nil {
		t.Fatal(err)
	}
	waits := l.AwaitAsync(ctxT(t))
	defer waits.Abandon()
	s.Do("CONFIG", "SET", "min-replicas-to-write", "1")
	before := s.CommandStats()["evalsha"]
	ctx, cancel := context.WithTimeout(ctxT(t), 3*time.Second)
	defer cancel()
	if err := l.CountDown(ctx); err == nil {
		t.Fatal("it is not refused")
	}
	if n := s.CommandStats()["evalsha"] - before; n > 100 {
		t.Errorf("%d scripts in 3 s", n)
	}
	s.Do("CONFIG", "SET", "min-replicas-to-write", "0")
}
