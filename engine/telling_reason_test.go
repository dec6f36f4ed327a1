package engine

import (
	"errors"
	"testing"
	"time"
)

// While contexts of a hold that was lost are being ended, this process is in the way,
// whatever it knows of the server.
func TestWhoWaitsForContextsToEndIsToldThatThisProcessHoldsTheLock(t *testing.T) {
	t.Parallel()
	e := open(t, server(t).URL(), func(c *Config) { c.CommandTimeout = 200 * time.Millisecond })
	m := e.Mutex("x")
	h := mustLock(t, m, Lease(2*time.Second)) // long enough for what follows
	g := newGated(t)
	h.Context(g)
	g.shut.Store(true)
	receive(t, g.called)
	wantLost(t, "the hold", h.Err(), LeaseEnded)
	for what, err := range map[string]error{
		"TryLock":        errOf(m.TryLock(ctxT(t))),
		"Lock with Wait": errOf(m.Lock(ctxT(t), Wait(10*time.Millisecond))),
	} {
		if !errors.Is(err, ErrHeld) || errors.Is(err, ErrUnavailable) || !hasText(err, "this process") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if ran, err := m.TryDo(ctxT(t), nil); ran || err != nil {
		t.Errorf("TryDo: %v, %v", ran, err)
	}
	g.open()
	mustUnlock(t, mustLock(t, m))
}
