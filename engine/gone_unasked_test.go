package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// An answer that says that the owner is gone is true, also when nobody waits for it any
// more. A fixed lease, of an hour here, is not renewed: nothing else would say so.
func TestAnswerThatNobodyWaitsForEndsAHoldThatIsGone(t *testing.T) {
	t.Parallel()
	// Each asks about the owner when the connections are paused, and gives up.
	short := Lease(300 * time.Millisecond)
	asks := map[string]func(t *testing.T, m Mutex, h *Hold, pause func()){
		"a re-entry": func(t *testing.T, m Mutex, h *Hold, pause func()) {
			ctx, cancel := context.WithCancel(h.Context(ctxT(t)))
			pause()
			f := m.LockAsync(ctx)
			cancel()
			<-f.Done()
		},
		"an Extend of a re-entry": func(t *testing.T, m Mutex, h *Hold, pause func()) {
			child := mustReenter(t, m, h, short)
			pause()
			if err := child.Extend(ctxT(t), time.Second); !errors.Is(err, ErrLost) {
				t.Errorf("Extend: %v", err)
			}
		},
		"an Unlock of a re-entry": func(t *testing.T, m Mutex, h *Hold, pause func()) {
			child := mustReenter(t, m, h, short)
			pause()
			if err := child.Unlock(ctxT(t)); !errors.Is(err, ErrOutcomeUnknown) {
				t.Errorf("Unlock: %v", err)
			}
		},
	}
	for name, ask := range asks {
		for reason, command := range map[LostReason][]string{
			GoneOnServer:  {"DEL", "x"},
			TakenOnServer: {"SET", "x", "something else"},
		} {
			t.Run(name+": "+reason.String(), func(t *testing.T) {
				t.Parallel()
				s, p, e := behind(t)
				m := e.Mutex("x")
				h := mustLock(t, m, Lease(time.Hour))
				ask(t, m, h, func() { p.Pause(faultproxy.All) })
				if err := h.Err(); err != nil {
					t.Fatalf("the hold has ended before anybody said so: %v", err)
				}
				s.Do(command...)
				p.Resume()
				receive(t, h.Done())
				wantLost(t, "the hold", h.Err(), reason)
			})
		}
	}
}
