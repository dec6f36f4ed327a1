package fair

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

const (
	fairQueue   = "redisson_lock_queue:{x}"
	fairTimeout = "redisson_lock_timeout:{x}"
)

// queued waits until n are in the queue of x.
func queued(t testing.TB, s *redistest.Server, n int) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("%d are queued", n), func() bool {
		return s.Do("LLEN", fairQueue) == int64(n) && s.Do("ZCARD", fairTimeout) == int64(n)
	})
}

// nothingOfX fails the test if anything of x is left on the server.
func nothingOfX(t testing.TB, s *redistest.Server) {
	t.Helper()
	testkit.Eventually(t, "nothing is left", func() bool { return s.Do("DBSIZE") == int64(0) })
}

// Waiters are served in the order in which they came, from any process.
func TestFairMutex_ManyWaiters_AreServedInTheOrderOfArrival(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	engines := []*engine.Engine{testkit.Open(t, s.URL()), testkit.Open(t, s.URL()), testkit.Open(t, s.URL())}
	first, err := engines[0].FairMutex("x").Lock(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	const n = 12
	order := make(chan int, n)
	for i := range n {
		engines[i*7%3].FairMutex("x").LockAsync(testkit.Ctx(t)).OnComplete(func(h *engine.Hold, err error) {
			if err != nil {
				t.Error(err)
			}
			order <- i
			h.UnlockAsync()
		})
		queued(t, s, i+1)
	}
	testkit.MustUnlock(t, first)
	for want := range n {
		if got := testkit.Receive(t, order); got != want {
			t.Fatalf("%d had it, and it was the turn of %d", got, want)
		}
	}
	nothingOfX(t, s)
	testkit.Eventually(t, "nobody listens", func() bool { return engines[0].Stats().Channels == 0 && engines[1].Stats().Channels == 0 })
}

// One who gives up leaves the queue, and wakes the next if the lock is free: the one before may
// have been told that it is his turn.
func TestFairMutex_WaiterGivesUp_LeavesTheQueue(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
	first := testkit.MustLock(t, e.FairMutex("x"))
	ctx, cancel := context.WithCancel(testkit.Ctx(t))
	gone := other.FairMutex("x").LockAsync(ctx)
	queued(t, s, 1)
	abandoned := e.FairMutex("x").LockAsync(testkit.Ctx(t))
	queued(t, s, 2)
	last := other.FairMutex("x").LockAsync(testkit.Ctx(t))
	queued(t, s, 3)
	abandoned.Abandon()
	queued(t, s, 2)
	cancel()
	if _, err := gone.Await(testkit.Ctx(t)); !errors.Is(err, context.Canceled) || !errors.Is(err, engine.ErrHeld) {
		t.Errorf("cancelled: %v", err)
	}
	queued(t, s, 1)
	if _, err := e.FairMutex("x").Lock(testkit.Ctx(t), engine.Wait(500*time.Millisecond)); !errors.Is(err, engine.ErrHeld) {
		t.Errorf("Wait is over: %v", err)
	}
	queued(t, s, 1)
	testkit.MustUnlock(t, first)
	h, err := last.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	testkit.MustUnlock(t, h)
	nothingOfX(t, s)
}

// The head's process has died while the lock was held: those behind it wait for seconds, and not
// until its time in the queue is over, in five minutes.
func TestFairMutex_DeadHead_HoldsUpNobodyForLong(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	h := testkit.MustLock(t, e.FairMutex("x"))
	at := fmt.Sprint(time.Now().Add(5 * time.Minute).UnixMilli())
	for _, dead := range []string{"dead:1", "dead:2"} {
		s.Do("RPUSH", fairQueue, dead)
		s.Do("ZADD", fairTimeout, at, dead)
	}
	next := e.FairMutex("x").LockAsync(testkit.Ctx(t))
	queued(t, s, 3)
	if _, err := e.FairMutex("x").TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
		t.Errorf("TryLock: %v", err)
	}
	testkit.Eventually(t, "it listens", func() bool { return testkit.Client(e).Stats().ChannelsConfirmed == 1 })
	testkit.MustUnlock(t, h)
	if _, err := e.FairMutex("x").TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
		t.Errorf("TryLock of a free lock that others wait for: %v", err)
	}
	h, err := next.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	testkit.MustUnlock(t, h)
	nothingOfX(t, s)
}

// A process has died with a crowd of waiters. Those behind them wait for seconds altogether, not
// for each of them, nor until the lease of the holder ends.
func TestFairMutex_ManyDeadWaiters_HoldUpNobodyForLong(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, s *redistest.Server, h *engine.Hold){
		"the holder unlocks":      func(t *testing.T, _ *redistest.Server, h *engine.Hold) { testkit.MustUnlock(t, h) },
		"the holder is taken off": func(t *testing.T, s *redistest.Server, h *engine.Hold) { forced(t, s, h) },
		"the holder dies, too":    func(t *testing.T, _ *redistest.Server, h *engine.Hold) { <-h.Done() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testkit.Server(t)
			e := testkit.Open(t, s.URL())
			h := testkit.MustLock(t, e.FairMutex("x"), engine.Lease(4*time.Second))
			if name != "the holder dies, too" {
				if err := h.Extend(testkit.Ctx(t), time.Hour); err != nil {
					t.Fatal(err)
				}
			}
			at := fmt.Sprint(time.Now().Add(5 * time.Minute).UnixMilli())
			queue, timeouts := []string{"RPUSH", fairQueue}, []string{"ZADD", fairTimeout}
			for i := range 40 {
				dead := fmt.Sprint("dead:", math.MaxInt64-i) // of a process of ours
				queue = append(queue, dead)
				timeouts = append(timeouts, at, dead)
			}
			s.Do(queue...)
			s.Do(timeouts...)
			next := e.FairMutex("x").LockAsync(testkit.Ctx(t))
			queued(t, s, 41)
			testkit.Eventually(t, "it listens", func() bool { return testkit.Client(e).Stats().ChannelsConfirmed == 1 })
			end(t, s, h)
			began := cputime.Now()
			h, err := next.Await(testkit.Ctx(t))
			if err != nil {
				t.Fatal(err)
			}
			if d := began.Elapsed(); d > 8*time.Second {
				t.Errorf("40 dead held it up for %v", d)
			}
			testkit.MustUnlock(t, h)
			nothingOfX(t, s)
		})
	}
}

// forced has another engine take the lock away.
func forced(t *testing.T, s *redistest.Server, h *engine.Hold) {
	t.Helper()
	if done, err := testkit.Open(t, s.URL()).FairMutex("x").ForceUnlock(testkit.Ctx(t), engine.IfHolder(h.Owner())); !done || err != nil {
		t.Errorf("ForceUnlock: %t, %v", done, err)
	}
}

// Somebody deletes the list, or the server evicts it. A waiter is queued again before long, and is
// served before others that come.
func TestFairMutex_QueueDeleted_WaiterQueuesAgain(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, queuesAgain)
}

func queuesAgain(t testing.TB) {
	s := testkit.Server(t)
	brief := func(c *engine.Config) { c.Lease = 3 * time.Second }
	a, b := testkit.Open(t, s.URL(), brief), testkit.Open(t, s.URL(), brief)
	h := testkit.MustLock(t, a.FairMutex("x"))
	first := b.FairMutex("x").LockAsync(testkit.Ctx(t))
	queued(t, s, 1)
	s.Do("DEL", fairQueue)
	queued(t, s, 1)
	second := a.FairMutex("x").LockAsync(testkit.Ctx(t))
	queued(t, s, 2)
	testkit.MustUnlock(t, h)
	for _, waits := range []*engine.Future[*engine.Hold]{first, second} {
		h, err := waits.Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		if waits == first {
			select {
			case <-second.Done():
				t.Error("the second is served, too")
			default:
			}
		}
		testkit.MustUnlock(t, h)
	}
	nothingOfX(t, s)
}

// A waiter keeps its place for longer than its room in the queue: each try raises its score.
func TestFairMutex_LockHeldForLong_WaiterKeepsItsPlace(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, keepsItsPlace)
}

func keepsItsPlace(t testing.TB) {
	s := testkit.Server(t)
	impatient := func(c *engine.Config) { c.Lease, c.FairWaitTimeout = 300*time.Millisecond, 400*time.Millisecond }
	engines := []*engine.Engine{testkit.Open(t, s.URL(), impatient), testkit.Open(t, s.URL(), impatient)}
	h, err := engines[0].FairMutex("x").Lock(testkit.Ctx(t), engine.Lease(3*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	var order []int
	done := make(chan struct{}, 4)
	for i := range 4 {
		engines[i%2].FairMutex("x").LockAsync(testkit.Ctx(t)).OnComplete(func(h *engine.Hold, err error) {
			if err != nil {
				t.Error(err)
			}
			order = append(order, i) // one holder at a time
			h.UnlockAsync()
			done <- struct{}{}
		})
		queued(t, s, i+1)
	}
	<-h.Done()
	for range 4 {
		testkit.Receive(t, done)
	}
	if !slices.IsSorted(order) {
		t.Errorf("the order was %v", order)
	}
	nothingOfX(t, s)
}

func TestFairMutex_Options_AreThoseOfAMutex(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
	m := e.FairMutex("x")
	h := testkit.MustLock(t, m, engine.Lease(time.Minute))
	if err := h.Extend(testkit.Ctx(t), time.Hour); err != nil {
		t.Error(err)
	}
	again := testkit.MustReenter(t, m, h)
	if got := testkit.Count(t, again, testkit.Fields(t, s, "x")); got != "2" {
		t.Errorf("count %s", got)
	}
	testkit.MustUnlock(t, again)
	if _, err := m.Lock(h.Context(testkit.Ctx(t)), engine.NonReentrant()); !errors.Is(err, engine.ErrReentry) {
		t.Errorf("NonReentrant: %v", err)
	}
	waiting := other.FairMutex("x").LockAsync(testkit.Ctx(t))
	queued(t, s, 1)
	if forced, err := other.FairMutex("x").ForceUnlock(testkit.Ctx(t), engine.IfHolder(h.Owner())); !forced || err != nil {
		t.Errorf("ForceUnlock: %t, %v", forced, err)
	}
	next, err := waiting.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
		t.Errorf("Unlock after it was taken by force: %v", err)
	}
	if st, err := m.State(testkit.Ctx(t)); err != nil || !st.Locked || st.Mine || st.Holders[0] != (engine.Holder{ID: next.Owner(), Count: 1}) {
		t.Errorf("%+v, %v", st, err)
	}
	testkit.MustUnlock(t, next)

	began := time.Now() // MinHold counts from before the answer
	h = testkit.MustLock(t, m, engine.MinHold(time.Second))
	waiting = other.FairMutex("x").LockAsync(testkit.Ctx(t))
	queued(t, s, 1)
	testkit.MustUnlock(t, h)
	if next, err = waiting.Await(testkit.Ctx(t)); err != nil || time.Since(began) < 900*time.Millisecond {
		t.Fatalf("%v after %v", err, time.Since(began))
	}
	testkit.MustUnlock(t, next)
	nothingOfX(t, s)
}

// A name is of one family at a time, in one engine.
func TestFairMutex_NameOfAMutex_IsRefused(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	h := testkit.MustLock(t, e.FairMutex("x"))
	for what, m := range map[string]engine.Mutex{"Mutex": e.Mutex("x"), "SpinMutex": e.SpinMutex("x"), "FencedMutex": e.FencedMutex("x")} {
		if _, err := m.Lock(testkit.Ctx(t)); !errors.Is(err, engine.ErrKindConflict) {
			t.Errorf("%s beside a FairMutex: %v", what, err)
		}
		if _, err := m.TryLock(h.Context(testkit.Ctx(t))); !errors.Is(err, engine.ErrKindConflict) {
			t.Errorf("%s under a FairMutex: %v", what, err)
		}
	}
	testkit.MustUnlock(t, h)
	testkit.Eventually(t, "the name is free", func() bool { return testkit.Inside(e).Names == 0 })
	h = testkit.MustLock(t, e.Mutex("x"))
	if _, err := e.FairMutex("x").LockAsync(testkit.Ctx(t)).Await(testkit.Ctx(t)); !errors.Is(err, engine.ErrKindConflict) {
		t.Errorf("a FairMutex beside a Mutex: %v", err)
	}
	testkit.MustUnlock(t, h)
	nothingOfX(t, s)
}

func TestFairMutex_Close_LeavesNothing(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	testkit.MustLock(t, e.FairMutex("x"))
	var waiting []*engine.Future[*engine.Hold]
	for i := range 20 {
		waiting = append(waiting, e.FairMutex("x").LockAsync(testkit.Ctx(t)))
		queued(t, s, i+1)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	for _, f := range waiting {
		if _, err := f.Await(testkit.Ctx(t)); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("a waiter: %v", err)
		}
	}
	nothingOfX(t, s)
}

// A place in the queue costs the server the same when it is left, however many are behind it: it writes
// the times of 50, and now and then of all: a hundred on average.
func TestFairMutex_CloseWithThousandsQueued_TakesThemOut(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	holder, e := testkit.Open(t, s.URL()), testkit.Open(t, s.URL(), func(c *engine.Config) { c.CloseTimeout = testkit.Limit })
	h := testkit.MustLock(t, holder.FairMutex("x"))
	const n = 3000
	for range n {
		e.FairMutex("x").LockAsync(testkit.Ctx(t))
	}
	testkit.Eventually(t, "all are queued", func() bool { return s.Do("LLEN", fairQueue) == int64(n) })
	before := s.CommandStats()["zadd"]
	if err := e.Close(); err != nil {
		t.Errorf("Close: %v; %v are queued still", err, s.Do("LLEN", fairQueue))
	}
	if each := (s.CommandStats()["zadd"] - before) / n; each > 120 {
		t.Errorf("a waiter that leaves writes %d times", each)
	}
	testkit.MustUnlock(t, h)
	testkit.Clean(t, s, holder)
}
