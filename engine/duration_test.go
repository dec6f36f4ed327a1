package engine

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// endless are what people write for "no bound".
var endless = map[string]time.Duration{"the longest duration": math.MaxInt64, "200 years": 200 * 365 * 24 * time.Hour}

func TestBoundThatNobodyLivesToSeeIsNone(t *testing.T) {
	t.Parallel()
	for name, d := range endless {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, e, clk := behindOn(t)
			h := mustLock(t, e.Mutex("x"), Wait(d), MaxHold(d))
			if left := pttl(t, s, "x"); left < 29*time.Second {
				t.Errorf("the key has %v left, want the watchdog's lease", left)
			}
			waiter := e.Mutex("x").LockAsync(ctxT(t), Wait(d))
			inner := mustReenter(t, e.Mutex("x"), h, MaxHold(d))
			clk.pass(time.Minute / 20)
			if _, err := waiter.Result(); !errors.Is(err, ErrPending) || h.Err() != nil || inner.Err() != nil {
				t.Errorf("a waiter: %v, the hold: %v, its re-entry: %v", err, h.Err(), inner.Err())
			}
			mustUnlock(t, inner)
			mustUnlock(t, h)
			if h, err := waiter.Await(ctxT(t)); err != nil {
				t.Errorf("the waiter: %v", err)
			} else {
				mustUnlock(t, h)
			}
		})
	}
}

func TestTimeoutThatNobodyLivesToSeeIsNone(t *testing.T) {
	t.Parallel()
	for name, d := range endless {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, p, e := behind(t, func(c *Config) { c.CommandTimeout, c.DialTimeout, c.CloseTimeout = d, d, d })
			m := e.Mutex("x")
			h := mustLock(t, e.Mutex("y"), Lease(time.Hour))
			p.Pause(faultproxy.All)
			first, try := m.LockAsync(ctxT(t)), m.TryLockAsync(ctxT(t)) // behind a command that is out
			extended := make(chan error, 1)
			go func() { extended <- h.Extend(ctxT(t), time.Hour) }()
			eventually(t, "both are out", func() bool { return e.Stats().InFlight == 2 })
			if _, err := try.Result(); !errors.Is(err, ErrPending) {
				t.Errorf("TryLock: %v, before anybody has answered", err)
			}
			p.Resume()
			if err := receive(t, extended); err != nil {
				t.Errorf("Extend: %v", err)
			}
			if _, err := first.Await(ctxT(t)); err != nil {
				t.Errorf("Lock: %v", err)
			}
			if _, err := try.Await(ctxT(t)); !errors.As(err, new(*NotAcquiredError)) {
				t.Errorf("TryLock: %v", err)
			}
			if err := e.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
}

// What the server is told is no bound: so long a lease is a mistake.
func TestLeaseThatNobodyLivesToSeeIsRefused(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	m := e.Mutex("x")
	fixed := mustLock(t, e.Mutex("fixed"), Lease(time.Hour))
	for name, d := range endless {
		t.Run(name, func(t *testing.T) {
			for what, opts := range map[string][]Option{"Lease": {Lease(d)}, "MinHold": {MinHold(d)}} {
				if _, err := m.Lock(ctxT(t), opts...); !errors.Is(err, ErrInvalid) || !hasText(err, what) || !hasText(err, "at most") {
					t.Errorf("%s: %v", what, err)
				}
			}
			if err := fixed.Extend(ctxT(t), d); !errors.Is(err, ErrInvalid) {
				t.Errorf("Extend: %v", err)
			}
		})
	}
	// The longest that is taken, and everything with it.
	h := mustLock(t, m, Lease(machine.MaxDuration), MinHold(machine.MaxDuration))
	if left := pttl(t, s, "x"); left < machine.MaxDuration-time.Hour {
		t.Errorf("the key has %v left", left)
	}
	if err := h.Extend(ctxT(t), machine.MaxDuration); err != nil {
		t.Errorf("Extend: %v", err)
	}
	mustUnlock(t, h)
	if left := pttl(t, s, "x"); left < machine.MaxDuration-time.Hour {
		t.Errorf("unlocked within its MinHold, the key has %v left", left)
	}
}
