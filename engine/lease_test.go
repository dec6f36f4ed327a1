package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// pttl is what the server says the key has left; negative: no key, no expiry.
func pttl(t testing.TB, s *redistest.Server, key string) time.Duration {
	t.Helper()
	ms, ok := s.Do("PTTL", key).(int64)
	if !ok {
		t.Fatal("PTTL is no number")
	}
	return time.Duration(ms) * time.Millisecond
}

func TestWatchdogRenewsUntilUnlock(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		e := open(t, s.URL(), shortLease(time.Second))
		h := mustLock(t, e.Mutex("x"))
		start, rises, last := time.Now(), 0, time.Duration(0)
		for time.Since(start) < 3*time.Second { // three leases
			ttl := pttl(t, s, "x")
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
		mustUnlock(t, h)
		clean(t, s)
	})
}

func TestFixedLeaseEndsAndIsTold(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		e := open(t, s.URL())
		m := e.Mutex("x")
		h := mustLock(t, m, Lease(250*time.Millisecond))
		ctx := h.Context(ctxT(t))
		until := h.ValidUntil()
		receive(t, h.Done())
		if now := time.Now(); now.Before(until.Add(-10*time.Millisecond)) || now.After(until.Add(time.Second)) {
			t.Errorf("told at %v, valid until %v", now, until)
		}
		wantLost(t, "Err", h.Err(), LeaseEnded)
		wantLost(t, "Unlock", h.Unlock(ctxT(t)), LeaseEnded)
		receive(t, ctx.Done())
		if n := e.Stats().Lost[LeaseEnded]; n != 1 {
			t.Errorf("counted %d times", n)
		}
		if !h.ValidUntil().Before(time.Now()) {
			t.Error("ValidUntil of an ended hold lies in the future")
		}
		mustUnlock(t, mustLock(t, m))
		clean(t, s)
	})
}

func TestMaxHoldEndsTheWatchdog(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		e := open(t, s.URL(), shortLease(time.Second))
		m := e.Mutex("x")
		start := time.Now()
		h := mustLock(t, m, MaxHold(2500*time.Millisecond))
		granted := time.Now()
		for h.Err() == nil {
			if left := pttl(t, s, "x"); left > 0 && time.Since(granted)+left > 3*time.Second {
				t.Fatalf("%v after the grant the key has %v left", time.Since(granted), left)
			}
			<-time.After(5 * time.Millisecond)
		}
		receive(t, h.Done())
		if d := time.Since(start); d < 2400*time.Millisecond {
			t.Errorf("it ended after %v", d)
		}
		wantLost(t, "Err", h.Err(), MaxHoldReached)
		if n := e.Stats().Renewed; n == 0 || n > 30 {
			t.Errorf("renewed %d times", n)
		}
		mustUnlock(t, mustLock(t, m))
		clean(t, s)
	})
}

// A lease longer than MaxHold is cut to it at the server, too.
func TestMaxHoldShorterThanTheLease(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		m := open(t, s.URL(), func(c *Config) { c.Margin = 50 * time.Millisecond }).Mutex("x")
		h := mustLock(t, m, MaxHold(400*time.Millisecond))
		if left := pttl(t, s, "x"); left > 450*time.Millisecond {
			t.Errorf("the key has %v left", left)
		}
		receive(t, h.Done())
		wantLost(t, "Err", h.Err(), MaxHoldReached)
	})
}

// An answer that takes its time must not put MaxHold after the lease that it has cut: the
// hold would end in between, of a renewal that nobody needed.
func TestMaxHoldIsTheReasonThoughTheGrantWasSlow(t *testing.T) {
	t.Parallel()
	_, p, e := behind(t, func(c *Config) { c.Lease, c.Margin = 3*time.Minute, 10*time.Millisecond })
	p.Delay(faultproxy.All, 0, 200*time.Millisecond)
	h := mustLock(t, e.Mutex("x"), MaxHold(400*time.Millisecond))
	receive(t, h.Done())
	wantLost(t, "Err", h.Err(), MaxHoldReached)
}

func TestMinHoldKeepsTheLockTaken(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		a, b := open(t, s.URL()), open(t, s.URL())
		h := mustLock(t, a.Mutex("x"), MinHold(600*time.Millisecond))
		start := time.Now()
		far, near := b.Mutex("x").LockAsync(ctxT(t)), a.Mutex("x").LockAsync(ctxT(t))
		eventually(t, "the other engine waits, with the long lease in mind", func() bool { return b.Stats().Channels == 1 })
		mustUnlock(t, h)
		if err := h.Err(); err != ErrReleased {
			t.Errorf("Err: %v", err)
		}
		if left := pttl(t, s, "x"); left <= 0 || left > 600*time.Millisecond {
			t.Errorf("the key has %v left", left)
		}
		if _, err := b.Mutex("x").TryLock(ctxT(t)); !errors.Is(err, ErrHeld) {
			t.Errorf("TryLock during the rest: %v", err)
		}
		if st, err := b.Mutex("x").State(ctxT(t)); err != nil || !st.Locked || st.Mine {
			t.Errorf("State during the rest: %+v, %v", st, err)
		}
		if st, err := a.Mutex("x").State(ctxT(t)); err != nil || !st.Locked || st.Mine {
			t.Errorf("State here during the rest: %+v, %v", st, err)
		}
		// Both come in by the expiry, one after the other, without any message.
		for _, f := range []*Future[*Hold]{far, near} {
			f.OnComplete(func(h *Hold, err error) {
				if d := time.Since(start); err == nil && d < 550*time.Millisecond {
					t.Errorf("somebody came in after %v", d)
				}
				if err == nil {
					h.UnlockAsync()
				}
			})
		}
		if _, err := AwaitAll(within(t, 5*time.Second), far, near); err != nil {
			t.Fatalf("the waiters did not come in by the expiry: %v", err)
		}
		eventually(t, "all released", func() bool { return a.Stats().Held+b.Stats().Held == 0 })
		clean(t, s)
	})
}

func TestMinHoldThatIsOverReleasesAtOnce(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		m := open(t, s.URL()).Mutex("x")
		h := mustLock(t, m, MinHold(50*time.Millisecond))
		<-time.After(60 * time.Millisecond) // the time that the job takes
		mustUnlock(t, h)
		clean(t, s)
	})
}

func TestExtend(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		m := open(t, s.URL()).Mutex("x")
		h := mustLock(t, m, Lease(400*time.Millisecond))
		if err := h.Extend(ctxT(t), 20*time.Second); err != nil {
			t.Fatal(err)
		}
		if left := pttl(t, s, "x"); left < 15*time.Second {
			t.Errorf("the key has %v left", left)
		}
		if left := time.Until(h.ValidUntil()); left < 15*time.Second || left > 20*time.Second {
			t.Errorf("valid for %v", left)
		}
		if err := h.Extend(ctxT(t), time.Second); err != nil { // never shorter
			t.Fatal(err)
		}
		if left := pttl(t, s, "x"); left < 15*time.Second {
			t.Errorf("the key has %v left after a shorter Extend", left)
		}
		<-time.After(450 * time.Millisecond) // the first lease would be over
		if err := h.Err(); err != nil {
			t.Errorf("Err: %v", err)
		}
		mustUnlock(t, h)
		if err := mustLock(t, m).Extend(ctxT(t), time.Minute); !errors.Is(err, ErrInvalid) {
			t.Errorf("Extend under the watchdog: %v", err)
		}
	})
}

func TestExtendOfAHoldThatIsGone(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	gone, taken := mustLock(t, e.Mutex("g"), Lease(time.Minute)), mustLock(t, e.Mutex("t"), Lease(time.Minute))
	s.Do("DEL", "g")
	s.Do("SET", "t", "1")
	wantLost(t, "gone", gone.Extend(ctxT(t), time.Minute), GoneOnServer)
	wantLost(t, "taken", taken.Extend(ctxT(t), time.Minute), TakenOnServer)
	wantLost(t, "gone's Unlock", gone.Unlock(ctxT(t)), GoneOnServer)
}

// ValidUntil is a promise: the server keeps the key for longer.
func TestValidUntilLiesBeforeTheEndOnTheServer(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		// The margin is the default one: clocks that are being slewed gain 10 ms in 2 s.
		e := open(t, s.URL(), func(c *Config) { c.Lease = time.Second })
		check := func(what string, h *Hold) {
			t.Helper()
			valid := h.ValidUntil()
			left := pttl(t, s, h.Name()) // the key ends at least this long after the question
			if asked := time.Now(); valid.After(asked.Add(left)) {
				t.Errorf("%s: valid until %v, the key ends %v before", what, valid, valid.Sub(asked.Add(left)))
			}
		}
		fixed, watched := mustLock(t, e.Mutex("fixed"), Lease(time.Minute)), mustLock(t, e.Mutex("watched"))
		capped := mustLock(t, e.Mutex("capped"), MaxHold(400*time.Millisecond))
		check("capped", capped)
		for range 150 {
			check("watched", watched)
			<-time.After(10 * time.Millisecond)
		}
		check("fixed", fixed)
		if err := fixed.Extend(ctxT(t), 2*time.Minute); err != nil {
			t.Fatal(err)
		}
		check("extended", fixed)
		child := mustReenter(t, e.Mutex("fixed"), fixed, Lease(10*time.Second))
		check("child", child)
		check("parent", fixed)
		mustUnlock(t, fixed)
		mustUnlock(t, watched)
	})
}

// The server counts the lease from when it executes a renewal, which may be right
// after it was sent: the time that the answer takes is not ours.
func TestRenewalCountsFromWhenItWasSent(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		_, p, e := behind(t, leaseOf(2*time.Second))
		h := mustLock(t, e.Mutex("x"))
		const late = 300 * time.Millisecond
		p.Delay(faultproxy.All, 0, late)
		for range 3 {
			n := e.Stats().Renewed
			eventually(t, "a renewal with a late answer", func() bool { return e.Stats().Renewed > n || h.Err() != nil })
			most := e.cfg.Lease - e.margin(e.cfg.Lease) - late
			if left := time.Until(h.ValidUntil()); left > most {
				t.Errorf("valid for another %v, of at most %v", left, most)
			}
		}
		if err := h.Err(); err != nil {
			t.Error(err)
		}
		mustUnlock(t, h)
	})
}
