package faults

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// An answer that says that the owner is gone is true, also when nobody waits for it any
// more. A fixed lease, of an hour here, is not renewed: nothing else would say so.
func TestAnswerThatNobodyWaitsForEndsAHoldThatIsGone(t *testing.T) {
	t.Parallel()
	// Each asks about the owner when the connections are paused, and gives up.
	// The lease ends after that, on a slow machine too.
	short := engine.Lease(2 * time.Second)
	asks := map[string]func(t *testing.T, m engine.Mutex, h *engine.Hold, pause func()){
		"a re-entry": func(t *testing.T, m engine.Mutex, h *engine.Hold, pause func()) {
			ctx, cancel := context.WithCancel(h.Context(testkit.Ctx(t)))
			pause()
			f := m.LockAsync(ctx)
			cancel()
			<-f.Done()
		},
		"an Extend of a re-entry": func(t *testing.T, m engine.Mutex, h *engine.Hold, pause func()) {
			child := testkit.MustReenter(t, m, h, short)
			pause()
			if err := child.Extend(testkit.Ctx(t), 4*time.Second); !errors.Is(err, engine.ErrLost) {
				t.Errorf("Extend: %v", err)
			}
		},
		"an Unlock of a re-entry": func(t *testing.T, m engine.Mutex, h *engine.Hold, pause func()) {
			child := testkit.MustReenter(t, m, h, short)
			pause()
			if err := child.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrOutcomeUnknown) {
				t.Errorf("Unlock: %v", err)
			}
		},
	}
	for name, ask := range asks {
		for reason, command := range map[engine.LostReason][]string{
			engine.RemovedOnServer: {"DEL", "x"},
			engine.KeyOverwritten:  {"SET", "x", "something else"},
		} {
			t.Run(name+": "+reason.String(), func(t *testing.T) {
				t.Parallel()
				s, p, e := testkit.Behind(t)
				m := e.Mutex("x")
				h := testkit.MustLock(t, m, engine.Lease(time.Hour))
				ask(t, m, h, func() { p.Pause(faultproxy.All) })
				if err := h.Err(); err != nil {
					t.Fatalf("the hold has ended before anybody said so: %v", err)
				}
				s.Do(command...)
				p.Resume()
				testkit.Receive(t, h.Done())
				testkit.WantLost(t, "the hold", h.Err(), reason)
			})
		}
	}
}
