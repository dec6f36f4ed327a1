package engine

import (
	"testing"
	"time"
)

// An owner whose acquire had no answer is released three times, and then forgotten.
func TestBurnedOwnerIsReleasedThreeTimes(t *testing.T) {
	t.Parallel()
	s, p, e, clk := behindOn(t, patient)
	released := p.Watch(releaseOf("x"))
	cut := p.CutAfterRequest(acquireOf("x"))
	f := e.Mutex("x").TryLockAsync(ctxT(t))
	cut.Wait(1)
	<-f.Done()
	for i, pause := range []time.Duration{0, time.Second, e.cfg.Lease} {
		clk.pass(pause)
		released.Wait(i + 1)
		eventually(t, "it is answered", func() bool { return e.Stats().InFlight == 0 })
	}
	eventually(t, "it is forgotten", func() bool { return e.table.Resources() == 0 })
	clk.pass(time.Hour)
	if n := released.Done(); n != 3 {
		t.Errorf("released %d times", n)
	}
	clean(t, s)
}
