package redisson

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// T13: what Redisson takes from its own clock, Pawl takes from the server's: scores of queues and
// the ends of permits.

// wrong is the clock of a machine whose wall clock is wrong.
type wrong struct {
	clock.Clock
	by atomic.Int64
}

func (w *wrong) Wall() time.Time { return w.Clock.Wall().Add(time.Duration(w.by.Load())) }

// openWrong connects an engine whose wall clock is wrong by d.
func openWrong(t testing.TB, d time.Duration, url string, change ...func(*engine.Config)) (*engine.Engine, *wrong) {
	t.Helper()
	w := &wrong{Clock: clock.System()}
	w.by.Store(int64(d))
	return testkit.OpenAt(t, w, url, change...), w
}

// serverTime is what the server's clock says.
func serverTime(s *redistest.Server) time.Time {
	now := s.Do("TIME").([]any)
	sec, _ := strconv.ParseInt(now[0].(string), 10, 64)
	micro, _ := strconv.ParseInt(now[1].(string), 10, 64)
	return time.Unix(sec, micro*1000)
}

func TestAFairQueueDoesNotDependOnTheClocksOfItsProcesses(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		const room, off = 10 * time.Second, 20 * time.Minute
		of := func(c *engine.Config) { c.FairWaitTimeout = room }
		ahead, one := openWrong(t, off, s.URL(), of)
		behind, other := openWrong(t, -off, s.URL(), of)
		h := testkit.MustLock(t, ahead.FairMutex("F"))
		waits := line(t, s, 6, nil, behind, ahead)
		scoresOf(t, s, room)
		waits[2].Abandon()
		fairQueued(t, s, 5)
		one.by.Store(int64(-off)) // an administrator mends it, and overshoots
		other.by.Store(int64(off))
		if _, err := behind.FairMutex("F").Lock(testkit.Ctx(t), engine.Wait(time.Second)); !errors.Is(err, engine.ErrHeld) {
			t.Errorf("a wait of a second: %v", err)
		}
		fairQueued(t, s, 5) // its place goes after the call has ended
		scoresOf(t, s, room)
		testkit.MustUnlock(t, h)
		for n, i := range []int{0, 1, 3, 4, 5} {
			h, err := waits[i].Await(testkit.Ctx(t))
			if err != nil {
				t.Fatal(err)
			}
			fairQueued(t, s, 4-n)
			testkit.MustUnlock(t, h)
		}
		testkit.Clean(t, s, ahead, behind)
	})
}

func TestPermitsDoNotDependOnTheClocksOfTheirProcesses(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		const off, lease = 20 * time.Minute, time.Minute
		permits(t, s, 2)
		ahead, _ := openWrong(t, off, s.URL(), testkit.LeaseOf(lease))
		behind, _ := openWrong(t, -off, s.URL(), testkit.LeaseOf(lease))
		ends := func(what string, want time.Duration) {
			t.Helper()
			now := serverTime(s)
			for _, id := range s.Do("ZRANGE", "{P}:timeout", "0", "-1").([]any) {
				score, _ := s.Do("ZSCORE", "{P}:timeout", id.(string)).(string)
				ms, err := strconv.ParseInt(score, 10, 64)
				if left := time.UnixMilli(ms).Sub(now); err != nil || left < want-10*time.Second || left > want {
					t.Errorf("%s: a permit ends in %v, want %v", what, left, want)
				}
			}
		}
		a, b := take(t, ahead.PermitSemaphore("P"), 1), take(t, behind.PermitSemaphore("P"), 1)
		ends("taken", lease)
		for _, e := range []*engine.Engine{ahead, behind} {
			counts(t, e.PermitSemaphore("P"), 0, 2)
			if _, err := e.PermitSemaphore("P").TryAcquire(testkit.Ctx(t), 1); !errors.Is(err, engine.ErrHeld) {
				t.Errorf("one takes what another holds: %v", err)
			}
		}
		for _, id := range s.Do("ZRANGE", "{P}:timeout", "0", "-1").([]any) {
			soon := strconv.FormatInt(serverTime(s).Add(40*time.Second).UnixMilli(), 10)
			s.Do("ZADD", "{P}:timeout", soon, id.(string))
		}
		ends("made shorter", 40*time.Second)
		for _, e := range []*engine.Engine{ahead, behind} {
			renewed := e.Stats().Renewed
			testkit.RenewAll(e)
			testkit.Eventually(t, "it is renewed", func() bool { return e.Stats().Renewed > renewed })
		}
		ends("renewed", lease)
		for _, h := range []*engine.Hold{a, b} {
			if err := h.Unlock(testkit.Ctx(t)); err != nil {
				t.Error(err)
			}
		}
		counts(t, behind.PermitSemaphore("P"), 2, 0)
	})
}

// clientTime matches a command with a number that is a time near now, in any usual unit.
func clientTime(c faultproxy.Command) bool {
	now := time.Now()
	for _, word := range c.Words {
		n, err := strconv.ParseFloat(word, 64)
		if err != nil {
			continue
		}
		for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond, time.Nanosecond} {
			if at := float64(now.UnixNano()) / float64(unit); n > 0.9*at && n < 1.1*at {
				return true
			}
		}
	}
	return false
}

func TestNoCommandTellsTheServerTheTimeOfItsClient(t *testing.T) {
	t.Parallel()
	s, p, e := testkit.Behind(t)
	seen := p.Watch(func(c faultproxy.Command) bool { return c.Name() == "EVALSHA" })
	times := p.Watch(clientTime) // it has the first look
	other := testkit.Open(t, s.URL())
	f, sem := e.FairMutex("F"), e.PermitSemaphore("P")
	if err := sem.SetPermits(testkit.Ctx(t), 1); err != nil {
		t.Fatal(err)
	}

	h := testkit.MustLock(t, other.FairMutex("F"))
	ctx, cancel := context.WithCancel(testkit.Ctx(t))
	leaves, waits := f.LockAsync(ctx), f.LockAsync(testkit.Ctx(t))
	fairQueued(t, s, 2)
	cancel()
	fairQueued(t, s, 1)
	_, _ = leaves.Await(testkit.Ctx(t))
	testkit.MustUnlock(t, h)
	h, err := waits.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	held := take(t, sem, 1)
	more := sem.AcquireAsync(testkit.Ctx(t), 1)
	renewed := e.Stats().Renewed
	testkit.RenewAll(e)
	testkit.Eventually(t, "both are renewed", func() bool { return e.Stats().Renewed >= renewed+2 })
	counts(t, sem, 0, 1)
	if err := held.Unlock(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
	if held, err = more.Await(testkit.Ctx(t)); err != nil {
		t.Fatal(err)
	}
	if err := held.Unlock(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
	testkit.MustUnlock(t, h)
	h, held = testkit.MustLock(t, f, engine.Lease(time.Minute)), take(t, sem, 1, engine.Lease(time.Minute))
	if err := errors.Join(h.Extend(testkit.Ctx(t), time.Hour), held.Extend(testkit.Ctx(t), time.Hour)); err != nil {
		t.Error(err)
	}
	if done, err := f.ForceUnlock(testkit.Ctx(t)); !done || err != nil {
		t.Error(done, err)
	}
	if done, err := sem.ForceRelease(testkit.Ctx(t), held.PermitIDs()[0]); !done || err != nil {
		t.Error(done, err)
	}
	if n := times.Done(); n != 0 {
		t.Errorf("%d commands had a time of the client", n)
	}
	if n := seen.Done(); n < 12 {
		t.Errorf("only %d scripts passed", n)
	}
}
