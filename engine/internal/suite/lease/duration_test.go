package lease

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// endless are what people write for "no bound".
var endless = map[string]time.Duration{"the longest duration": math.MaxInt64, "200 years": 200 * 365 * 24 * time.Hour}

func TestConfig_TimeoutOfCenturies_IsNone(t *testing.T) {
	t.Parallel()
	for name, d := range endless {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, p, e := testkit.Behind(t, func(c *engine.Config) { c.CommandTimeout, c.DialTimeout, c.CloseTimeout = d, d, d })
			m := e.Mutex("x")
			h := testkit.MustLock(t, e.Mutex("y"), engine.Lease(time.Hour))
			p.Pause(faultproxy.All)
			first, try := m.LockAsync(testkit.Ctx(t)), m.TryLockAsync(testkit.Ctx(t)) // behind a command that is out
			extended := make(chan error, 1)
			go func() { extended <- h.Extend(testkit.Ctx(t), time.Hour) }()
			testkit.Eventually(t, "both are out", func() bool { return e.Stats().InFlight == 2 })
			if _, err := try.Result(); !errors.Is(err, engine.ErrPending) {
				t.Errorf("TryLock: %v, before anybody has answered", err)
			}
			p.Resume()
			if err := testkit.Receive(t, extended); err != nil {
				t.Errorf("Extend: %v", err)
			}
			if _, err := first.Await(testkit.Ctx(t)); err != nil {
				t.Errorf("Lock: %v", err)
			}
			if _, err := try.Await(testkit.Ctx(t)); !errors.As(err, new(*engine.NotAcquiredError)) {
				t.Errorf("TryLock: %v", err)
			}
			if err := e.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
}

// What the server is told is no bound: so long a lease is a mistake.
func TestLease_OfCenturies_IsRefused(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	m := e.Mutex("x")
	fixed := testkit.MustLock(t, e.Mutex("fixed"), engine.Lease(time.Hour))
	for name, d := range endless {
		t.Run(name, func(t *testing.T) {
			for what, opts := range map[string][]engine.Option{"Lease": {engine.Lease(d)}, "MinHold": {engine.MinHold(d)}} {
				if _, err := m.Lock(testkit.Ctx(t), opts...); !errors.Is(err, engine.ErrInvalid) || !testkit.HasText(err, what) || !testkit.HasText(err, "at most") {
					t.Errorf("%s: %v", what, err)
				}
			}
			if err := fixed.Extend(testkit.Ctx(t), d); !errors.Is(err, engine.ErrInvalid) {
				t.Errorf("Extend: %v", err)
			}
		})
	}
	// The longest that is taken, and everything with it.
	h := testkit.MustLock(t, m, engine.Lease(lock.MaxDuration), engine.MinHold(lock.MaxDuration))
	if left := testkit.PTTL(t, s, "x"); left < lock.MaxDuration-time.Hour {
		t.Errorf("the key has %v left", left)
	}
	if err := h.Extend(testkit.Ctx(t), lock.MaxDuration); err != nil {
		t.Errorf("Extend: %v", err)
	}
	testkit.MustUnlock(t, h)
	if left := testkit.PTTL(t, s, "x"); left < lock.MaxDuration-time.Hour {
		t.Errorf("unlocked within its MinHold, the key has %v left", left)
	}
}
