package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// Every hold that was acquired is held, released or lost, also if nobody knows what became
// of its release. And a call that is told so is counted once.
func TestStatsKnowTheEndOfHoldsWhoseReleaseHasNoAnswer(t *testing.T) {
	t.Parallel()
	stopWaiting := func(t *testing.T, h *Hold) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := h.Unlock(ctx); !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("Unlock: %v", err)
		}
	}
	for name, c := range map[string]struct {
		reentry bool // it is that of a re-entry
		end     func(*testing.T, *faultproxy.Proxy, fakeTime, *Hold)
		held    int
	}{
		"given up at the end of the lease": {end: func(t *testing.T, _ *faultproxy.Proxy, clk fakeTime, h *Hold) {
			f := h.UnlockAsync()
			clk.pass(3 * time.Hour)
			if _, err := f.Await(ctxT(t)); !errors.Is(err, ErrOutcomeUnknown) {
				t.Errorf("Unlock: %v", err)
			}
		}},
		"given up at the end of the lease of a re-entry": {reentry: true, held: 1, end: func(t *testing.T, _ *faultproxy.Proxy, clk fakeTime, h *Hold) {
			f := h.UnlockAsync()
			clk.pass(90 * time.Minute)
			if _, err := f.Await(ctxT(t)); !errors.Is(err, ErrOutcomeUnknown) {
				t.Errorf("Unlock: %v", err)
			}
		}},
		"given up after its caller": {end: func(t *testing.T, _ *faultproxy.Proxy, clk fakeTime, h *Hold) {
			stopWaiting(t, h)
			clk.pass(3 * time.Hour)
		}},
		"given up by Close": {end: func(t *testing.T, _ *faultproxy.Proxy, clk fakeTime, h *Hold) {
			f := h.UnlockAsync()
			if err := clk.eng.Close(); !errors.Is(err, ErrOutcomeUnknown) {
				t.Errorf("Close: %v", err)
			}
			if _, err := f.Result(); !errors.Is(err, ErrOutcomeUnknown) {
				t.Errorf("Unlock: %v", err)
			}
		}},
		"answered after its caller has given up": {end: func(t *testing.T, p *faultproxy.Proxy, clk fakeTime, h *Hold) {
			stopWaiting(t, h)
			p.Resume()
			eventually(t, "it is answered", func() bool { return inspect(clk.eng).Names == 0 })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, p, e, clk := behindOn(t, patient, func(cfg *Config) { cfg.CloseTimeout = 50 * time.Millisecond })
			h, acquired := mustLock(t, e.Mutex("x"), Lease(2*time.Hour)), uint64(1)
			if c.reentry {
				h, acquired = mustReenter(t, e.Mutex("x"), h, Lease(time.Hour)), 2
			}
			p.Pause(faultproxy.All)
			c.end(t, p, clk, h)
			if st := e.Stats(); st.Acquired != acquired || st.Released != 1 || st.Held != c.held || len(st.Lost) != 0 || st.UnknownOutcomes != 1 {
				t.Errorf("%+v", st)
			}
		})
	}
}
