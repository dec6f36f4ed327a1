package counters

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

var counters = faultproxy.Is("EVALSHA", script.Counter.SHA)

// An operation whose answer is lost is executed once.
func TestAnAnswerThatIsLostIsAskedForAgain(t *testing.T) {
	t.Parallel()
	srv, p, e := testkit.Behind(t)
	s, l := e.Semaphore("s"), e.Latch("l")
	testkit.MustSetPermits(t, s, 5)
	if _, err := l.TrySetCount(testkit.Ctx(t), 3); err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func() error{
		"acquire":    func() error { return testkit.ErrOf(s.Acquire(testkit.Ctx(t), 2)) },
		"add":        func() error { return s.AddPermits(testkit.Ctx(t), 2) },
		"count down": func() error { return l.CountDown(testkit.Ctx(t)) },
		"look":       func() error { return testkit.ErrOf(s.Available(testkit.Ctx(t))) },
	} {
		trap := p.CutAfterRequest(counters)
		if err := do(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		trap.Remove()
	}
	if v, w := srv.Do("GET", "s"), srv.Do("GET", "l"); v != "5" || w != "2" {
		t.Errorf("the semaphore has %v, the latch %v", v, w)
	}
}

// Without a server each call says what is true, when its time is over.
func TestWithoutAServer(t *testing.T) {
	t.Parallel()
	srv, p, e := testkit.Behind(t, func(c *engine.Config) { c.CommandTimeout = 300 * time.Millisecond })
	s, l := e.Semaphore("s"), e.Latch("l")
	testkit.MustSetPermits(t, testkit.Open(t, srv.URL()).Semaphore("s"), 5) // with the usual timeout
	held := testkit.MustAcquire(t, s, 2)
	p.Down()
	testkit.Eventually(t, "it is down", func() bool { return e.Stats().InFlight == 0 && testkit.ErrOf(s.Available(testkit.Ctx(t))) != nil })
	short := func() context.Context { // but not over before the call
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	for name, err := range map[string]error{
		"Acquire, Wait":   testkit.ErrOf(s.Acquire(testkit.Ctx(t), 1, engine.Wait(50*time.Millisecond))),
		"Acquire":         testkit.ErrOf(s.Acquire(short(), 1)),
		"TryAcquire":      testkit.ErrOf(s.TryAcquire(testkit.Ctx(t), 1)),
		"TryAcquireAsync": testkit.ErrOf(s.TryAcquireAsync(testkit.Ctx(t), 1).Await(testkit.Ctx(t))),
		"SetPermits":      testkit.ErrOf(s.TrySetPermits(testkit.Ctx(t), 1)),
		"AddPermits":      s.AddPermits(testkit.Ctx(t), 1),
		"Available":       testkit.ErrOf(s.Available(testkit.Ctx(t))),
		"Drain":           testkit.ErrOf(s.Drain(testkit.Ctx(t))),
		"CountDown":       l.CountDown(short()),
		"TrySetCount":     testkit.ErrOf(l.TrySetCount(testkit.Ctx(t), 1)),
		"Await":           l.Await(testkit.Ctx(t), engine.Wait(50*time.Millisecond)),
	} {
		if !errors.Is(err, engine.ErrUnavailable) || errors.Is(err, engine.ErrOutcomeUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := held.Release(short()); !errors.Is(err, engine.ErrOutcomeUnknown) || !errors.Is(err, engine.ErrUnavailable) {
		t.Errorf("Release: %v", err)
	}
	waits := s.AcquireAsync(context.Background(), 5)
	awaits := l.AwaitAsync(context.Background())
	p.Up()
	if _, err := waits.Await(testkit.Ctx(t)); err != nil { // with what was released
		t.Fatal(err)
	}
	if _, err := awaits.Await(testkit.Ctx(t)); err != nil {
		t.Fatal(err)
	}
	if v := srv.Do("GET", "s"); v != "0" {
		t.Errorf("the semaphore has %v", v)
	}
}

// A message that was lost with the connection does not leave anybody asleep.
func TestMessagesThatAreLostWithTheConnection(t *testing.T) {
	t.Parallel()
	srv, p, e := testkit.Behind(t)
	s, l := e.Semaphore("s"), e.Latch("l")
	testkit.MustSetPermits(t, s, 0)
	if _, err := l.TrySetCount(testkit.Ctx(t), 1); err != nil {
		t.Fatal(err)
	}
	waits, awaits := s.AcquireAsync(context.Background(), 1), l.AwaitAsync(context.Background())
	testkit.Eventually(t, "both listen", func() bool { return testkit.Client(e).Stats().ChannelsConfirmed == 2 })
	p.Down()
	srv.Do("INCRBY", "s", "1")
	srv.Do("DEL", "l")
	p.Up()
	if _, err := waits.Await(testkit.Ctx(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := awaits.Await(testkit.Ctx(t)); err != nil {
		t.Fatal(err)
	}
}

// A server that refuses for a while is asked again.
func TestAServerThatRefusesForAWhile(t *testing.T) {
	t.Parallel()
	srv, p, e := testkit.Behind(t)
	s := e.Semaphore("s")
	testkit.MustSetPermits(t, s, 1)
	p.ReplaceReply(counters, []byte("-BUSY not now\r\n"), 3)
	held := testkit.MustAcquire(t, s, 1)
	if err := held.Release(testkit.Ctx(t)); err != nil {
		t.Fatal(err)
	}
	if v := srv.Do("GET", "s"); v != "1" {
		t.Errorf("the semaphore has %v", v)
	}
}

// Closed while nobody answers, an engine says that not everything was given back.
func TestCloseWithoutAServerSaysThatItIsNotClean(t *testing.T) {
	t.Parallel()
	srv, p, e := testkit.Behind(t, func(c *engine.Config) { c.CloseTimeout = 300 * time.Millisecond })
	s := e.Semaphore("s")
	testkit.MustSetPermits(t, s, 3)
	held := testkit.MustAcquire(t, s, 2)
	p.Down()
	if err := e.Close(); !errors.Is(err, engine.ErrOutcomeUnknown) {
		t.Errorf("Close: %v", err)
	}
	if err := held.Err(); !errors.Is(err, engine.ErrLost) {
		t.Error(err)
	}
	if v := srv.Do("GET", "s"); v != "1" {
		t.Errorf("the semaphore has %v", v)
	}
}

// What sets the permits of a PermitSemaphore, and has no answer in time, may have been executed.
func TestPermitsThatWereSetWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	srv, p, e := testkit.Behind(t, func(c *engine.Config) { c.CommandTimeout = 2 * time.Second })
	s := e.PermitSemaphore("s")
	if err := s.SetPermits(testkit.Ctx(t), 3); err != nil {
		t.Fatal(err)
	}

	// The answers come too late.
	p.Delay(faultproxy.All, 0, time.Hour)
	ctx, cancel := context.WithCancel(testkit.Ctx(t))
	canceled := make(chan error)
	go func() { canceled <- s.SetPermits(ctx, 7) }()
	testkit.Eventually(t, "it is executed", func() bool { return srv.Do("GET", "s") == "7" })
	cancel()
	if err := <-canceled; !errors.Is(err, engine.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("SetPermits, canceled: %v", err)
	}
	if err := s.SetPermits(testkit.Ctx(t), 5); !errors.Is(err, engine.ErrOutcomeUnknown) {
		t.Errorf("SetPermits: %v", err)
	}
	if _, err := s.Available(testkit.Ctx(t)); !errors.Is(err, engine.ErrUnavailable) || errors.Is(err, engine.ErrOutcomeUnknown) {
		t.Errorf("Available: %v", err)
	}
	p.Delay(faultproxy.All, 0, 0)
	testkit.Eventually(t, "it is in time again", func() bool { return s.SetPermits(testkit.Ctx(t), 3) == nil })

	// The first answer is lost, and then there is no connection for another copy.
	p.CutAfterRequest(faultproxy.Is("EVALSHA", script.PermitSet.SHA))
	failed := make(chan error)
	go func() { failed <- s.SetPermits(testkit.Ctx(t), 9) }()
	testkit.Eventually(t, "it is executed once more", func() bool { return srv.Do("GET", "s") == "9" })
	p.Down()
	if err := <-failed; err != nil && !errors.Is(err, engine.ErrOutcomeUnknown) { // nil: a copy was faster
		t.Errorf("SetPermits, cut: %v", err)
	}
	p.Up()
	testkit.Eventually(t, "it is up", func() bool { return s.SetPermits(testkit.Ctx(t), 3) == nil })
}
