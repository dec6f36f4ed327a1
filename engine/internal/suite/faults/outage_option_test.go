package faults

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
)

// wantAway fails the test unless the error says that a server is away, and why.
func wantAway(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, engine.ErrUnavailable) || errors.Is(err, engine.ErrHeld) || !testkit.HasText(err, "refused") {
		t.Errorf("%s: %v", what, err)
	}
}

// Everything that can be acquired fails at once while the server is known to be away, and does so
// while it waits when the server goes.
func TestOutage_OfNone_FailsAtOnceAndWhenTheServerGoes(t *testing.T) {
	t.Parallel()
	s, p, e := testkit.Behind(t)
	other := testkit.Open(t, s.URL())
	ctx := testkit.Ctx(t)
	testkit.MustLock(t, other.Mutex("held"))
	testkit.MustLock(t, e.Mutex("here")) // of this process
	if err := other.PermitSemaphore("none").SetPermits(ctx, 0); err != nil {
		t.Fatal(err)
	}
	calls := map[string]func() error{
		"held":  func() error { return testkit.ErrOf(e.Mutex("held").Lock(ctx, engine.Outage(0))) },
		"here":  func() error { return testkit.ErrOf(e.Mutex("here").Lock(ctx, engine.Outage(0))) },
		"async": func() error { return testkit.ErrOf(e.Mutex("held").LockAsync(ctx, engine.Outage(0)).Await(ctx)) },
		"with Wait": func() error {
			return testkit.ErrOf(e.Mutex("held").Lock(ctx, engine.Outage(0), engine.Wait(time.Hour)))
		},
		"permits": func() error { return testkit.ErrOf(e.PermitSemaphore("none").Acquire(ctx, 1, engine.Outage(0))) },
		"count":   func() error { return testkit.ErrOf(e.Semaphore("unset").Acquire(ctx, 1, engine.Outage(0))) },
		"many":    func() error { return testkit.ErrOf(e.LockMany(ctx, []string{"held", "x"}, engine.Outage(0))) },
	}
	failed := make(chan error, len(calls))
	for what, call := range calls {
		go func() {
			err := call()
			wantOutage(t, what, err)
			failed <- err
		}()
	}
	testkit.Eventually(t, "all wait", func() bool { return e.Stats().Waiting >= len(calls)-1 })
	p.Down()
	for range calls {
		testkit.Receive(t, failed)
	}
	testkit.Eventually(t, "each connection was tried again", func() bool {
		return testkit.HasText(testkit.Client(e).LaneError(0), "refused")
	})
	calls["TryLock"] = func() error { return testkit.ErrOf(e.Mutex("y").TryLock(ctx, engine.Outage(0))) }
	calls["TryLockMany"] = func() error { return testkit.ErrOf(e.Many([]string{"y", "z"}...).TryLock(ctx, engine.Outage(0))) }
	for what, call := range calls {
		begun := cputime.Now()
		wantAway(t, what, call())
		if took := begun.Elapsed(); took > time.Second {
			t.Errorf("%s fails after %v", what, took)
		}
	}
	if _, err := e.Semaphore("unset").Acquire(ctx, 0, engine.Outage(0)); err != nil {
		t.Errorf("to acquire nothing asks nobody: %v", err)
	}
	p.Up()
	testkit.Eventually(t, "it is back", func() bool { return e.Ready() == nil })
	if _, err := e.Mutex("y").TryLock(ctx, engine.Outage(0)); err != nil {
		t.Errorf("the server is back: %v", err)
	}
}

// A closed engine says so, however long its connections have been gone.
func TestOutage_EngineIsClosed_SaysSo(t *testing.T) {
	t.Parallel()
	_, _, e := testkit.Behind(t)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	ctx := testkit.Ctx(t)
	for what, err := range map[string]error{
		"count": testkit.ErrOf(e.Semaphore("unset").Acquire(ctx, 1, engine.Outage(0))),
		"mutex": testkit.ErrOf(e.Mutex("y").Lock(ctx, engine.Outage(0))),
	} {
		if !errors.Is(err, engine.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// wantOutage is wantAway for one that may have been told before the first attempt to connect.
func wantOutage(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, engine.ErrUnavailable) || errors.Is(err, engine.ErrHeld) {
		t.Errorf("%s: %v", what, err)
	}
}

// It counts in a row: outages that are shorter, and come again and again, end no waiting; one that is
// longer does, after its time. So it does for one that comes in the middle of it.
func TestOutage_ThatFlaps_CountsAnew(t *testing.T) {
	t.Parallel()
	s, p, e, clk := testkit.BehindInTime(t)
	h := testkit.MustLock(t, testkit.Open(t, s.URL()).Mutex("x"))
	const most = time.Hour
	patient := e.Mutex("x").LockAsync(testkit.Ctx(t), engine.Outage(most))
	for range 4 {
		p.Down()
		testkit.Eventually(t, "it is away", func() bool { return testkit.Client(e).DownSince(0) != 0 })
		clk.Pass(most * 3 / 4)
		p.Up()
		testkit.Eventually(t, "it is back", func() bool { return e.Ready() == nil })
	}
	if _, err := patient.Result(); !errors.Is(err, engine.ErrPending) {
		t.Fatalf("after outages that were shorter: %v", err)
	}
	p.Down()
	testkit.Eventually(t, "it is away", func() bool { return testkit.Client(e).DownSince(0) != 0 })
	clk.Pass(most / 2)
	late := e.Mutex("y").LockAsync(testkit.Ctx(t), engine.Outage(most))
	short := e.Mutex("z").LockAsync(testkit.Ctx(t), engine.Outage(most/3))
	_, err := short.Await(testkit.Ctx(t))
	wantOutage(t, "it has lasted for longer already", err)
	for what, f := range map[string]*engine.Future[*engine.Hold]{"before it": patient, "in the middle of it": late} {
		if _, err := f.Result(); !errors.Is(err, engine.ErrPending) {
			t.Errorf("one that came %s, after half of its time: %v", what, err)
		}
	}
	clk.Pass(most/2 + time.Minute)
	for what, f := range map[string]*engine.Future[*engine.Hold]{"before it": patient, "in the middle of it": late} {
		_, err := f.Await(testkit.Ctx(t))
		wantOutage(t, "one that came "+what, err)
	}
	p.Up()
	testkit.MustUnlock(t, h)
}

// Many need the servers of all, whichever they wait for; a RedLock needs a majority.
func TestOutage_OfSeveralServers_IsThatOfEachOrOfAMajority(t *testing.T) {
	t.Parallel()
	_, first, a := testkit.Behind(t)
	_, second, b := testkit.Behind(t)
	s, _, c := testkit.Behind(t)
	testkit.MustLock(t, testkit.Open(t, s.URL()).Mutex("x")) // so all wait
	locks := []engine.Mutex{a.Mutex("x"), b.Mutex("x"), c.Mutex("x")}
	ctx := testkit.Ctx(t)
	multi := engine.Multi(locks...).LockAsync(ctx, engine.Outage(0))
	red, err := engine.RedLock(locks...).Lock(ctx, engine.Outage(0))
	if err != nil {
		t.Fatal(err)
	}
	testkit.MustLock(t, testkit.Open(t, "redis://"+first.Addr()).Mutex("y"))
	testkit.MustLock(t, testkit.Open(t, "redis://"+second.Addr()).Mutex("y"))
	waiting := engine.RedLock(a.Mutex("y"), b.Mutex("y"), c.Mutex("y")).LockAsync(ctx, engine.Outage(0))
	first.Down()
	_, err = multi.Await(ctx)
	wantOutage(t, "of many one is away", err)
	testkit.Eventually(t, "it is known", func() bool { return a.Ready() != nil })
	if _, err := waiting.Result(); !errors.Is(err, engine.ErrPending) {
		t.Errorf("of three one is away: %v", err)
	}
	second.Down()
	_, err = waiting.Await(ctx)
	wantOutage(t, "of three two are away", err)
	begun := cputime.Now()
	for what, call := range map[string]func(ctx context.Context) error{
		"RedLock": func(ctx context.Context) error {
			return testkit.ErrOf(engine.RedLock(locks...).Lock(ctx, engine.Outage(0)))
		},
		"RedLock, TryLock": func(ctx context.Context) error {
			return testkit.ErrOf(engine.RedLock(locks...).TryLock(ctx, engine.Outage(0)))
		},
		"Multi, TryLock": func(ctx context.Context) error {
			return testkit.ErrOf(engine.Multi(locks...).TryLock(ctx, engine.Outage(0)))
		},
	} {
		wantOutage(t, what, call(ctx))
	}
	if took := begun.Elapsed(); took > 2*time.Second {
		t.Errorf("that is known, and told after %v", took)
	}
	first.Up()
	second.Up()
	if err := red.Unlock(ctx); err != nil {
		t.Error(err)
	}
}

// It is an option of what is acquired, and no negative time.
func TestOutage_Invalid_IsRefused(t *testing.T) {
	t.Parallel()
	_, _, e := testkit.Behind(t)
	if _, err := e.Mutex("x").Lock(testkit.Ctx(t), engine.Outage(-1)); !errors.Is(err, engine.ErrInvalid) {
		t.Error(err)
	}
	if h, err := e.Mutex("x").TryLock(testkit.Ctx(t), engine.Outage(200*365*24*time.Hour)); err != nil {
		t.Error(err)
	} else {
		testkit.MustUnlock(t, h)
	}
}

// Who asks whether it is there is told at once what is known, and Stats have the servers.
func TestReady_ServerAway_SaysWhyWithoutWaiting(t *testing.T) {
	t.Parallel()
	_, p, e := testkit.Behind(t)
	if err := e.Ready(); err != nil {
		t.Fatal(err)
	}
	if st := e.Stats(); st.Connected != 1 || len(st.DownSince) != 0 {
		t.Errorf("%d connected, down %v", st.Connected, st.DownSince)
	}
	begun := time.Now()
	p.Down()
	testkit.Eventually(t, "it is away", func() bool { return testkit.HasText(e.Ready(), "refused") })
	st := e.Stats()
	if since := st.DownSince[p.Addr()]; st.Connected != 0 || len(st.DownSince) != 1 || since.Before(begun.Add(-time.Second)) || since.After(time.Now()) {
		t.Errorf("%d connected, down %v", st.Connected, st.DownSince)
	}
	testkit.Eventually(t, "Ping is told at once", func() bool {
		begun := time.Now()
		err := e.Ping(testkit.Ctx(t))
		wantAway(t, "Ping", err)
		return time.Since(begun) < 500*time.Millisecond // less than its timeout by far
	})
	p.Up()
	testkit.Eventually(t, "it is back", func() bool { return e.Ready() == nil && e.Stats().Connected == 1 })
	if err := e.Ping(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
	e.Close()
	if err := e.Ready(); !errors.Is(err, engine.ErrClosed) {
		t.Error(err)
	}
}
