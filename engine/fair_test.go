package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/recovery"
	"github.com/pawl-lock/pawl/internal/pace"
	"github.com/pawl-lock/pawl/internal/redistest"
)

const (
	fairQueue   = "redisson_lock_queue:{x}"
	fairTimeout = "redisson_lock_timeout:{x}"
)

// queued waits until n are in the queue of x.
func queued(t *testing.T, s *redistest.Server, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d are queued", n), func() bool {
		return s.Do("LLEN", fairQueue) == int64(n) && s.Do("ZCARD", fairTimeout) == int64(n)
	})
}

// nothingOfX fails the test if anything of x is left on the server.
func nothingOfX(t *testing.T, s *redistest.Server) {
	t.Helper()
	eventually(t, "nothing is left", func() bool { return s.Do("DBSIZE") == int64(0) })
}

// Waiters are served in the order in which they came, from any process.
func TestAFairMutexIsGrantedInTheOrderOfArrival(t *testing.T) {
	t.Parallel()
	s := server(t)
	engines := []*Engine{open(t, s.URL()), open(t, s.URL()), open(t, s.URL())}
	first, err := engines[0].FairMutex("x").Lock(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	const n = 12
	order := make(chan int, n)
	for i := range n {
		engines[i*7%3].FairMutex("x").LockAsync(ctxT(t)).OnComplete(func(h *Hold, err error) {
			if err != nil {
				t.Error(err)
			}
			order <- i
			h.UnlockAsync()
		})
		queued(t, s, i+1)
	}
	mustUnlock(t, first)
	for want := range n {
		if got := receive(t, order); got != want {
			t.Fatalf("%d had it, and it was the turn of %d", got, want)
		}
	}
	nothingOfX(t, s)
	eventually(t, "nobody listens", func() bool { return engines[0].Stats().Channels == 0 && engines[1].Stats().Channels == 0 })
}

// One who gives up leaves the queue, and wakes the next if the lock is free: the one before may
// have been told that it is his turn.
func TestOneWhoGivesUpLeavesTheQueue(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	first := mustLock(t, e.FairMutex("x"))
	ctx, cancel := context.WithCancel(ctxT(t))
	gone := other.FairMutex("x").LockAsync(ctx)
	queued(t, s, 1)
	abandoned := e.FairMutex("x").LockAsync(ctxT(t))
	queued(t, s, 2)
	last := other.FairMutex("x").LockAsync(ctxT(t))
	queued(t, s, 3)
	abandoned.Abandon()
	queued(t, s, 2)
	cancel()
	if _, err := gone.Await(ctxT(t)); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrHeld) {
		t.Errorf("cancelled: %v", err)
	}
	queued(t, s, 1)
	if _, err := e.FairMutex("x").Lock(ctxT(t), Wait(500*time.Millisecond)); !errors.Is(err, ErrHeld) {
		t.Errorf("Wait is over: %v", err)
	}
	queued(t, s, 1)
	mustUnlock(t, first)
	h, err := last.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, h)
	nothingOfX(t, s)
}

// The head's process has died while the lock was held: those behind it wait for seconds, and not
// until its time in the queue is over, in five minutes.
func TestADeadHeadHoldsUpNobodyForLong(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	h := mustLock(t, e.FairMutex("x"))
	at := fmt.Sprint(time.Now().Add(5 * time.Minute).UnixMilli())
	for _, dead := range []string{"dead:1", "dead:2"} {
		s.Do("RPUSH", fairQueue, dead)
		s.Do("ZADD", fairTimeout, at, dead)
	}
	next := e.FairMutex("x").LockAsync(ctxT(t))
	queued(t, s, 3)
	if _, err := e.FairMutex("x").TryLock(ctxT(t)); !errors.Is(err, ErrHeld) {
		t.Errorf("TryLock: %v", err)
	}
	eventually(t, "it listens", func() bool { return connected(e).Stats().ChannelsConfirmed == 1 })
	mustUnlock(t, h)
	if _, err := e.FairMutex("x").TryLock(ctxT(t)); !errors.Is(err, ErrHeld) {
		t.Errorf("TryLock of a free lock that others wait for: %v", err)
	}
	h, err := next.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, h)
	nothingOfX(t, s)
}

// A process has died with a crowd of waiters. Those behind them wait for seconds altogether, not
// for each of them, nor until the lease of the holder ends.
func TestADeadCrowdHoldsUpNobodyForLong(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, s *redistest.Server, h *Hold){
		"the holder unlocks":      func(t *testing.T, _ *redistest.Server, h *Hold) { mustUnlock(t, h) },
		"the holder is taken off": func(t *testing.T, s *redistest.Server, h *Hold) { forced(t, s, h) },
		"the holder dies, too":    func(t *testing.T, _ *redistest.Server, h *Hold) { <-h.Done() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			e := open(t, s.URL())
			h := mustLock(t, e.FairMutex("x"), Lease(4*time.Second))
			if name != "the holder dies, too" {
				if err := h.Extend(ctxT(t), time.Hour); err != nil {
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
			next := e.FairMutex("x").LockAsync(ctxT(t))
			queued(t, s, 41)
			eventually(t, "it listens", func() bool { return connected(e).Stats().ChannelsConfirmed == 1 })
			end(t, s, h)
			began := time.Now()
			h, err := next.Await(ctxT(t))
			if err != nil {
				t.Fatal(err)
			}
			if d := time.Since(began); d > 8*time.Second {
				t.Errorf("40 dead held it up for %v", d)
			}
			mustUnlock(t, h)
			nothingOfX(t, s)
		})
	}
}

// forced has another engine take the lock away.
func forced(t *testing.T, s *redistest.Server, h *Hold) {
	t.Helper()
	if done, err := open(t, s.URL()).FairMutex("x").ForceUnlock(ctxT(t), IfHolder(h.Owner())); !done || err != nil {
		t.Errorf("ForceUnlock: %t, %v", done, err)
	}
}

// Somebody deletes the list, or the server evicts it. A waiter is queued again before long, and is
// served before others that come.
func TestAWaiterWhoseQueueIsGoneIsQueuedAgain(t *testing.T) {
	t.Parallel()
	s := server(t)
	brief := func(c *Config) { c.Lease = 3 * time.Second }
	a, b := open(t, s.URL(), brief), open(t, s.URL(), brief)
	h := mustLock(t, a.FairMutex("x"))
	first := b.FairMutex("x").LockAsync(ctxT(t))
	queued(t, s, 1)
	s.Do("DEL", fairQueue)
	queued(t, s, 1)
	second := a.FairMutex("x").LockAsync(ctxT(t))
	queued(t, s, 2)
	mustUnlock(t, h)
	for _, waits := range []*Future[*Hold]{first, second} {
		h, err := waits.Await(ctxT(t))
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
		mustUnlock(t, h)
	}
	nothingOfX(t, s)
}

// A waiter keeps its place for longer than its room in the queue: each try raises its score.
func TestAWaiterKeepsItsPlaceHoweverLongTheLockIsHeld(t *testing.T) {
	t.Parallel()
	s := server(t)
	impatient := func(c *Config) { c.Lease, c.FairWait = 300*time.Millisecond, 400*time.Millisecond }
	engines := []*Engine{open(t, s.URL(), impatient), open(t, s.URL(), impatient)}
	h, err := engines[0].FairMutex("x").Lock(ctxT(t), Lease(3*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	var order []int
	done := make(chan struct{}, 4)
	for i := range 4 {
		engines[i%2].FairMutex("x").LockAsync(ctxT(t)).OnComplete(func(h *Hold, err error) {
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
		receive(t, done)
	}
	if !slices.IsSorted(order) {
		t.Errorf("the order was %v", order)
	}
	nothingOfX(t, s)
}

func TestAFairMutexHasTheOptionsOfAMutex(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	m := e.FairMutex("x")
	h := mustLock(t, m, Lease(time.Minute))
	if err := h.Extend(ctxT(t), time.Hour); err != nil {
		t.Error(err)
	}
	again := mustReenter(t, m, h)
	if got := count(t, again, fields(t, s, "x")); got != "2" {
		t.Errorf("count %s", got)
	}
	mustUnlock(t, again)
	if _, err := m.Lock(h.Context(ctxT(t)), NonReentrant()); !errors.Is(err, ErrReentry) {
		t.Errorf("NonReentrant: %v", err)
	}
	waiting := other.FairMutex("x").LockAsync(ctxT(t))
	queued(t, s, 1)
	if forced, err := other.FairMutex("x").ForceUnlock(ctxT(t), IfHolder(h.Owner())); !forced || err != nil {
		t.Errorf("ForceUnlock: %t, %v", forced, err)
	}
	next, err := waiting.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Unlock(ctxT(t)); !errors.Is(err, ErrLost) {
		t.Errorf("Unlock after it was taken by force: %v", err)
	}
	if st, err := m.State(ctxT(t)); err != nil || !st.Locked || st.Mine || st.Holders[0] != (Holder{next.Owner(), 1}) {
		t.Errorf("%+v, %v", st, err)
	}
	mustUnlock(t, next)

	began := time.Now() // MinHold counts from before the answer
	h = mustLock(t, m, MinHold(time.Second))
	waiting = other.FairMutex("x").LockAsync(ctxT(t))
	queued(t, s, 1)
	mustUnlock(t, h)
	if next, err = waiting.Await(ctxT(t)); err != nil || time.Since(began) < 900*time.Millisecond {
		t.Fatalf("%v after %v", err, time.Since(began))
	}
	mustUnlock(t, next)
	nothingOfX(t, s)
}

// A name is of one family at a time, in one engine.
func TestAFairMutexAndAMutexShareNoName(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	h := mustLock(t, e.FairMutex("x"))
	for what, m := range map[string]Mutex{"Mutex": e.Mutex("x"), "SpinMutex": e.SpinMutex("x"), "FencedMutex": e.FencedMutex("x")} {
		if _, err := m.Lock(ctxT(t)); !errors.Is(err, ErrKind) {
			t.Errorf("%s beside a FairMutex: %v", what, err)
		}
		if _, err := m.TryLock(h.Context(ctxT(t))); !errors.Is(err, ErrKind) {
			t.Errorf("%s under a FairMutex: %v", what, err)
		}
	}
	mustUnlock(t, h)
	eventually(t, "the name is free", func() bool { return inspect(e).Names == 0 })
	h = mustLock(t, e.Mutex("x"))
	if _, err := e.FairMutex("x").LockAsync(ctxT(t)).Await(ctxT(t)); !errors.Is(err, ErrKind) {
		t.Errorf("a FairMutex beside a Mutex: %v", err)
	}
	mustUnlock(t, h)
	nothingOfX(t, s)
}

func TestCloseLeavesNothingOfAFairMutex(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	mustLock(t, e.FairMutex("x"))
	var waiting []*Future[*Hold]
	for i := range 20 {
		waiting = append(waiting, e.FairMutex("x").LockAsync(ctxT(t)))
		queued(t, s, i+1)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	for _, f := range waiting {
		if _, err := f.Await(ctxT(t)); !errors.Is(err, ErrClosed) {
			t.Errorf("a waiter: %v", err)
		}
	}
	nothingOfX(t, s)
}

// A release that is sent once more to a new primary wakes the first of the queue there, and takes its
// owner out of the queue, as it did on the old one.
func TestAReleaseOfAFairMutexThatIsSentAgainIsOneOfTheQueue(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	s.Do("HSET", "x", e.ID()+":5", "1")
	s.Do("PEXPIRE", "x", "3600000")
	left := e.ID() + ":6"
	s.Do("RPUSH", fairQueue, left)
	s.Do("ZADD", fairTimeout, fmt.Sprint(time.Now().Add(2*time.Hour).UnixMilli()), left)
	next := other.FairMutex("x").LockAsync(ctxT(t))
	eventually(t, "it has been refused again, when it listened", func() bool { return s.CommandStats()["lpos"] > 0 })
	again := func(id int64) {
		e.table.Recovery.Again([]recovery.Release{{Name: "x", Kind: kind.Fair, ID: id, At: e.clock.Now()}}, 0)
	}
	again(6)
	queued(t, s, 1)
	sent := pace.Now()
	again(5)
	h, err := next.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	if d := sent.Elapsed(); d > 2*time.Second {
		t.Errorf("the first of the queue has it after %v", d)
	}
	mustUnlock(t, h)
	nothingOfX(t, s)
}

// A place in the queue costs the server the same when it is left, however many are behind it: it writes
// the times of 50, and now and then of all: a hundred on average.
func TestCloseTakesThousandsOutOfAFairQueue(t *testing.T) {
	t.Parallel()
	s := server(t)
	holder, e := open(t, s.URL()), open(t, s.URL(), func(c *Config) { c.CloseTimeout = limit })
	h := mustLock(t, holder.FairMutex("x"))
	const n = 3000
	for range n {
		e.FairMutex("x").LockAsync(ctxT(t))
	}
	eventually(t, "all are queued", func() bool { return s.Do("LLEN", fairQueue) == int64(n) })
	before := s.CommandStats()["zadd"]
	if err := e.Close(); err != nil {
		t.Errorf("Close: %v; %v are queued still", err, s.Do("LLEN", fairQueue))
	}
	if each := (s.CommandStats()["zadd"] - before) / n; each > 120 {
		t.Errorf("a waiter that leaves writes %d times", each)
	}
	mustUnlock(t, h)
	clean(t, s, holder)
}
