package lease

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

func TestWatchdog_Held_RenewsUntilUnlock(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		e := testkit.Open(t, s.URL(), testkit.ShortLease(time.Second))
		h := testkit.MustLock(t, e.Mutex("x"))
		start, rises, last := time.Now(), 0, time.Duration(0)
		for time.Since(start) < 3*time.Second { // three leases
			ttl := testkit.PTTL(t, s, "x")
			if ttl < 0 {
				t.Fatalf("the key is gone after %v", time.Since(start))
			}
			if ttl > time.Second {
				t.Fatalf("PTTL is %v, more than the lease", ttl)
			}
			if ttl > last {
				rises++
			}
			last = ttl
			<-time.After(5 * time.Millisecond)
		}
		if err := h.Err(); err != nil {
			t.Errorf("Err: %v", err)
		}
		if n := e.Stats().Renewed; n < 4 || rises < 4 {
			t.Errorf("%d renewals, PTTL rose %d times in three leases", n, rises)
		}
		testkit.MustUnlock(t, h)
		testkit.Clean(t, s)
	})
}

func TestLease_Fixed_EndsTheHold(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		e := testkit.Open(t, s.URL())
		m := e.Mutex("x")
		h := testkit.MustLock(t, m, engine.Lease(250*time.Millisecond))
		ctx := h.Context(testkit.Ctx(t))
		until := h.ValidUntil()
		testkit.Receive(t, h.Done())
		if now := time.Now(); now.Before(until.Add(-10*time.Millisecond)) || now.After(until.Add(time.Second)) {
			t.Errorf("told at %v, valid until %v", now, until)
		}
		testkit.WantLost(t, "Err", h.Err(), engine.LeaseEnded)
		testkit.WantLost(t, "Unlock", h.Unlock(testkit.Ctx(t)), engine.LeaseEnded)
		testkit.Receive(t, ctx.Done())
		if n := e.Stats().Lost[engine.LeaseEnded]; n != 1 {
			t.Errorf("counted %d times", n)
		}
		if !h.ValidUntil().Before(time.Now()) {
			t.Error("ValidUntil of an ended hold lies in the future")
		}
		testkit.MustUnlock(t, testkit.MustLock(t, m))
		testkit.Clean(t, s)
	})
}

func TestMaxHold_Over_EndsTheWatchdog(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		e := testkit.Open(t, s.URL(), testkit.ShortLease(time.Second))
		m := e.Mutex("x")
		start := time.Now()
		h := testkit.MustLock(t, m, engine.MaxHold(2500*time.Millisecond))
		granted := time.Now()
		for h.Err() == nil {
			if left := testkit.PTTL(t, s, "x"); left > 0 && time.Since(granted)+left > 3*time.Second {
				t.Fatalf("%v after the grant the key has %v left", time.Since(granted), left)
			}
			<-time.After(5 * time.Millisecond)
		}
		testkit.Receive(t, h.Done())
		if d := time.Since(start); d < 2400*time.Millisecond {
			t.Errorf("it ended after %v", d)
		}
		testkit.WantLost(t, "Err", h.Err(), engine.MaxHoldReached)
		if n := e.Stats().Renewed; n == 0 || n > 30 {
			t.Errorf("renewed %d times", n)
		}
		testkit.MustUnlock(t, testkit.MustLock(t, m))
		testkit.Clean(t, s)
	})
}

// A lease longer than MaxHold is cut to it at the server, too.
func TestMaxHold_ShorterThanTheLease_EndsTheHold(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		m := testkit.Open(t, s.URL(), func(c *engine.Config) { c.Margin = 50 * time.Millisecond }).Mutex("x")
		h := testkit.MustLock(t, m, engine.MaxHold(400*time.Millisecond))
		if left := testkit.PTTL(t, s, "x"); left > 450*time.Millisecond {
			t.Errorf("the key has %v left", left)
		}
		testkit.Receive(t, h.Done())
		testkit.WantLost(t, "Err", h.Err(), engine.MaxHoldReached)
	})
}

// An answer that takes its time must not put MaxHold after the lease that it has cut: the
// hold would end in between, of a renewal that nobody needed.
func TestMaxHold_SlowGrant_IsTheReason(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) { // or every grant comes after its MaxHold
		_, p, e := testkit.Behind(t, func(c *engine.Config) { c.Lease, c.Margin = 3*time.Minute, 10*time.Millisecond })
		p.Delay(faultproxy.All, 0, 200*time.Millisecond)
		h := testkit.MustLock(t, e.Mutex("x"), engine.MaxHold(400*time.Millisecond))
		testkit.Receive(t, h.Done())
		testkit.WantLost(t, "Err", h.Err(), engine.MaxHoldReached)
	})
}

func TestMinHold_NotOver_KeepsTheLockTaken(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		a, b := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
		h := testkit.MustLock(t, a.Mutex("x"), engine.MinHold(600*time.Millisecond))
		start := time.Now()
		far, near := b.Mutex("x").LockAsync(testkit.Ctx(t)), a.Mutex("x").LockAsync(testkit.Ctx(t))
		testkit.Eventually(t, "the other engine waits, with the long lease in mind", func() bool { return b.Stats().Channels == 1 })
		testkit.MustUnlock(t, h)
		if err := h.Err(); err != engine.ErrReleased {
			t.Errorf("Err: %v", err)
		}
		if left := testkit.PTTL(t, s, "x"); left <= 0 || left > 600*time.Millisecond {
			t.Errorf("the key has %v left", left)
		}
		if _, err := b.Mutex("x").TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
			t.Errorf("TryLock during the rest: %v", err)
		}
		if st, err := b.Mutex("x").State(testkit.Ctx(t)); err != nil || !st.Locked || st.Mine {
			t.Errorf("State during the rest: %+v, %v", st, err)
		}
		if st, err := a.Mutex("x").State(testkit.Ctx(t)); err != nil || !st.Locked || st.Mine {
			t.Errorf("State here during the rest: %+v, %v", st, err)
		}
		// Both come in by the expiry, one after the other, without any message.
		for _, f := range []*engine.Future[*engine.Hold]{far, near} {
			f.OnComplete(func(h *engine.Hold, err error) {
				if d := time.Since(start); err == nil && d < 550*time.Millisecond {
					t.Errorf("somebody came in after %v", d)
				}
				if err == nil {
					h.UnlockAsync()
				}
			})
		}
		if _, err := engine.AwaitAll(testkit.Within(t, 5*time.Second), far, near); err != nil {
			t.Fatalf("the waiters did not come in by the expiry: %v", err)
		}
		testkit.Eventually(t, "all released", func() bool { return a.Stats().Held+b.Stats().Held == 0 })
		testkit.Clean(t, s)
	})
}

func TestMinHold_Over_ReleasesAtOnce(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		m := testkit.Open(t, s.URL()).Mutex("x")
		h := testkit.MustLock(t, m, engine.MinHold(50*time.Millisecond))
		<-time.After(60 * time.Millisecond) // the time that the job takes
		testkit.MustUnlock(t, h)
		testkit.Clean(t, s)
	})
}

func TestExtend_Held_ProlongsTheLease(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		m := testkit.Open(t, s.URL()).Mutex("x")
		h := testkit.MustLock(t, m, engine.Lease(400*time.Millisecond))
		if err := h.Extend(testkit.Ctx(t), 20*time.Second); err != nil {
			t.Fatal(err)
		}
		if left := testkit.PTTL(t, s, "x"); left < 15*time.Second {
			t.Errorf("the key has %v left", left)
		}
		if left := time.Until(h.ValidUntil()); left < 15*time.Second || left > 20*time.Second {
			t.Errorf("valid for %v", left)
		}
		if err := h.Extend(testkit.Ctx(t), time.Second); err != nil { // never shorter
			t.Fatal(err)
		}
		if left := testkit.PTTL(t, s, "x"); left < 15*time.Second {
			t.Errorf("the key has %v left after a shorter Extend", left)
		}
		<-time.After(450 * time.Millisecond) // the first lease would be over
		if err := h.Err(); err != nil {
			t.Errorf("Err: %v", err)
		}
		testkit.MustUnlock(t, h)
		if err := testkit.MustLock(t, m).Extend(testkit.Ctx(t), time.Minute); !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("Extend under the watchdog: %v", err)
		}
	})
}

func TestExtend_HoldGone_IsLost(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	gone, taken := testkit.MustLock(t, e.Mutex("g"), engine.Lease(time.Minute)), testkit.MustLock(t, e.Mutex("t"), engine.Lease(time.Minute))
	s.Do("DEL", "g")
	s.Do("SET", "t", "1")
	testkit.WantLost(t, "gone", gone.Extend(testkit.Ctx(t), time.Minute), engine.RemovedOnServer)
	testkit.WantLost(t, "taken", taken.Extend(testkit.Ctx(t), time.Minute), engine.KeyOverwritten)
	testkit.WantLost(t, "gone's Unlock", gone.Unlock(testkit.Ctx(t)), engine.RemovedOnServer)
}

// ValidUntil is a promise: the server keeps the key for longer.
func TestHold_ValidUntil_LiesBeforeTheEndOnTheServer(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		// The margin is the default one: clocks that are being slewed gain 10 ms in 2 s.
		e := testkit.Open(t, s.URL(), func(c *engine.Config) { c.Lease = time.Second })
		check := func(what string, h *engine.Hold) {
			t.Helper()
			valid := h.ValidUntil()
			left := testkit.PTTL(t, s, h.Name()) // the key ends at least this long after the query
			if asked := time.Now(); valid.After(asked.Add(left)) {
				t.Errorf("%s: valid until %v, the key ends %v before", what, valid, valid.Sub(asked.Add(left)))
			}
		}
		fixed, watched := testkit.MustLock(t, e.Mutex("fixed"), engine.Lease(time.Minute)), testkit.MustLock(t, e.Mutex("watched"))
		capped := testkit.MustLock(t, e.Mutex("capped"), engine.MaxHold(400*time.Millisecond))
		check("capped", capped)
		for range 150 {
			check("watched", watched)
			<-time.After(10 * time.Millisecond)
		}
		check("fixed", fixed)
		if err := fixed.Extend(testkit.Ctx(t), 2*time.Minute); err != nil {
			t.Fatal(err)
		}
		check("extended", fixed)
		child := testkit.MustReenter(t, e.Mutex("fixed"), fixed, engine.Lease(10*time.Second))
		check("child", child)
		check("parent", fixed)
		testkit.MustUnlock(t, fixed)
		testkit.MustUnlock(t, watched)
	})
}
