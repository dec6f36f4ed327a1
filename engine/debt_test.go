package engine

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// An owner whose acquire had no answer is released three times, and then forgotten.
func TestBurnedOwnerIsReleasedThreeTimes(t *testing.T) {
	t.Parallel()
	s, p, e, clk := behindOn(t, patient)
	released := p.Watch(releaseOf("x"))
	p.Delay(faultproxy.All, 0, time.Hour)
	asked := p.Watch(acquireOf("x"))
	f := e.Mutex("x").TryLockAsync(ctxT(t))
	asked.Wait(1)
	f.Abandon() // or it would try again
	<-f.Done()
	p.Delay(faultproxy.All, 0, 0)
	p.Cut(faultproxy.All)
	for i, pause := range []time.Duration{0, time.Second, e.cfg.Lease} {
		clk.pass(pause)
		released.Wait(i + 1)
		eventually(t, "it is answered", func() bool { return e.Stats().InFlight == 0 })
	}
	eventually(t, "it is forgotten", func() bool { return inspect(e).Names == 0 })
	clk.pass(time.Hour)
	if n := released.Done(); n != 3 {
		t.Errorf("released %d times", n)
	}
	clean(t, s)
}
