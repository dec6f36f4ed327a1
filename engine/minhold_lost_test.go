package engine

import (
	"errors"
	"testing"
	"time"
)

// A hold with a MinHold may be lost before that is over. The job may have run, so nobody
// gets the lock any sooner than after an Unlock.
func TestMinHoldOutlastsALostHold(t *testing.T) {
	t.Parallel()
	const short = 10 * time.Millisecond
	for name, c := range map[string]struct {
		margin time.Duration
		lose   func(testing.TB, *Engine) (*Hold, LostReason)
	}{
		"by Close": {short, func(t testing.TB, e *Engine) (*Hold, LostReason) {
			h := mustLock(t, e.Mutex("x"), MinHold(time.Minute))
			if err := e.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			return h, EngineClosed
		}},
		"by Close, with the MinHold of a re-entry": {short, func(t testing.TB, e *Engine) (*Hold, LostReason) {
			h := mustLock(t, e.Mutex("x"))
			mustUnlock(t, mustReenter(t, e.Mutex("x"), h, MinHold(time.Minute)))
			if err := e.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			return h, EngineClosed
		}},
		"when its lease ended, a margin before the server's": {time.Minute - time.Second, func(t testing.TB, e *Engine) (*Hold, LostReason) {
			return mustLock(t, e.Mutex("x"), Lease(time.Minute), MinHold(time.Minute)), LeaseEnded
		}},
		"at the MaxHold of what was re-entered": {short, func(t testing.TB, e *Engine) (*Hold, LostReason) {
			h := mustLock(t, e.Mutex("x"), MaxHold(2*time.Second))
			mustReenter(t, e.Mutex("x"), h, MinHold(time.Minute))
			return h, MaxHoldReached
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			e, other := open(t, s.URL(), func(cfg *Config) { cfg.Lease, cfg.Margin = 3*time.Minute, c.margin }), open(t, s.URL())
			h, reason := c.lose(t, e)
			receive(t, h.Done())
			wantLost(t, "the hold", h.Err(), reason)
			eventually(t, "its owner is gone", func() bool { return fields(t, s, "x")[h.Owner()] == "" })
			if left := pttl(t, s, "x"); left < 50*time.Second || left > time.Minute {
				t.Errorf("the key has %v left", left)
			}
			if _, err := other.Mutex("x").TryLock(ctxT(t)); !errors.Is(err, ErrHeld) {
				t.Errorf("TryLock during the rest: %v", err)
			}
		})
	}
}

// What a new primary has missed of that is sent again with what the MinHold has left.
func TestMinHoldOfALostHoldThatTheNewPrimaryMissedKeepsItsRest(t *testing.T) {
	t.Parallel()
	o := newOutdated(t, func(c *Config) { c.Lease, c.Margin = 3*time.Minute, time.Minute-time.Second })
	h := mustLock(t, o.e.Mutex("x"), Lease(time.Minute), MinHold(time.Minute))
	o.holdUp(1)
	receive(t, h.Done())
	eventually(t, "its owner is gone", func() bool { return fields(t, o.primary, "x")[h.Owner()] == "" })
	o.promote()
	eventually(t, "its owner is gone there, too", func() bool { return fields(t, o.promoted, "x")[h.Owner()] == "" })
	if left := pttl(t, o.promoted, "x"); left < 30*time.Second || left > time.Minute {
		t.Errorf("the key has %v left", left)
	}
}
