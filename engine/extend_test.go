package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// The answer to an Extend that was given up must not be taken for that of the next
// one, which asked for more.
func TestExtendIsNotToldTheAnswerToTheOneBefore(t *testing.T) {
	t.Parallel()
	s, p, e := behind(t)
	h := mustLock(t, e.Mutex("x"), Lease(20*time.Second))
	p.Pause(faultproxy.All)
	ctx, cancel := context.WithCancel(context.Background())
	gaveUp := make(chan error, 1)
	go func() { gaveUp <- h.Extend(ctx, 30*time.Second) }()
	eventually(t, "it is in flight", func() bool { return e.Stats().InFlight > 0 })
	cancel()
	if err := receive(t, gaveUp); !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("the first: %v", err)
	}
	second := make(chan error, 1)
	go func() { second <- h.Extend(ctxT(t), time.Hour) }()
	eventually(t, "the second waits", func() bool {
		h.h.sh.mu.Lock()
		defer h.h.sh.mu.Unlock()
		return h.h.extra.extend != nil
	})
	p.Resume()
	if err := receive(t, second); err != nil {
		t.Fatal(err)
	}
	if left := pttl(t, s, "x"); left < 50*time.Minute {
		t.Errorf("Extend by an hour succeeded, and the key has %v left", left)
	}
	mustUnlock(t, h)
	clean(t, s)
}
