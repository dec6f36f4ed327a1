package lease

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// A hold with a MinHold may be lost before that is over. The job may have run, so nobody
// gets the lock any sooner than after an Unlock.
func TestMinHold_HoldLost_OutlastsIt(t *testing.T) {
	t.Parallel()
	const short = 10 * time.Millisecond
	for name, c := range map[string]struct {
		margin time.Duration
		lose   func(testing.TB, *engine.Engine) (*engine.Hold, engine.LostReason)
	}{
		"by Close": {short, func(t testing.TB, e *engine.Engine) (*engine.Hold, engine.LostReason) {
			h := testkit.MustLock(t, e.Mutex("x"), engine.MinHold(time.Minute))
			if err := e.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			return h, engine.EngineClosed
		}},
		"by Close, with the MinHold of a re-entry": {short, func(t testing.TB, e *engine.Engine) (*engine.Hold, engine.LostReason) {
			h := testkit.MustLock(t, e.Mutex("x"))
			testkit.MustUnlock(t, testkit.MustReenter(t, e.Mutex("x"), h, engine.MinHold(time.Minute)))
			if err := e.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			return h, engine.EngineClosed
		}},
		"when its lease ended, a margin before the server's": {time.Minute - time.Second, func(t testing.TB, e *engine.Engine) (*engine.Hold, engine.LostReason) {
			return testkit.MustLock(t, e.Mutex("x"), engine.Lease(time.Minute), engine.MinHold(time.Minute)), engine.LeaseEnded
		}},
		"at the MaxHold of what was re-entered": {short, func(t testing.TB, e *engine.Engine) (*engine.Hold, engine.LostReason) {
			h := testkit.MustLock(t, e.Mutex("x"), engine.MaxHold(2*time.Second))
			testkit.MustReenter(t, e.Mutex("x"), h, engine.MinHold(time.Minute))
			return h, engine.MaxHoldReached
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testkit.Server(t)
			e, other := testkit.Open(t, s.URL(), func(cfg *engine.Config) { cfg.Lease, cfg.Margin = 3*time.Minute, c.margin }), testkit.Open(t, s.URL())
			h, reason := c.lose(t, e)
			testkit.Receive(t, h.Done())
			testkit.WantLost(t, "the hold", h.Err(), reason)
			testkit.Eventually(t, "its owner is gone", func() bool { return testkit.Fields(t, s, "x")[h.Owner()] == "" })
			if left := testkit.PTTL(t, s, "x"); left < 50*time.Second || left > time.Minute {
				t.Errorf("the key has %v left", left)
			}
			if _, err := other.Mutex("x").TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
				t.Errorf("TryLock during the rest: %v", err)
			}
		})
	}
}
