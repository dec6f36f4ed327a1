package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/faultproxy"
)

func TestExtendOfAMultiHold(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	h := mustLockMany(t, e, someNames(50), Lease(5*time.Second))
	if err := h.Extend(ctxT(t), time.Minute); err != nil {
		t.Fatal(err)
	}
	if left := time.Until(h.ValidUntil()); left < 50*time.Second {
		t.Errorf("valid for %v", left)
	}
	s.Do("DEL", "n7")
	err := h.Extend(ctxT(t), 2*time.Minute)
	var lost *LostError
	if !errors.As(err, &lost) || lost.Name != "n7" {
		t.Errorf("Extend: %v", err)
	}
	receive(t, h.Done())
	_ = h.Unlock(ctxT(t))
	clean(t, s, e)
}

// Behind another Extend it takes the locks at the same time, too: not a round trip for each.
func TestExtendOfAMultiHoldBehindAnother(t *testing.T) {
	t.Parallel()
	s, p, e := behind(t)
	h := mustLockMany(t, e, someNames(400), Lease(time.Minute))
	p.Pause(faultproxy.Carried("EVALSHA"))
	extend := func(d time.Duration) func() error { return func() error { return h.Extend(ctxT(t), d) } }
	first := background(extend(2 * time.Minute))
	eventually(t, "the first is out", func() bool { return e.Stats().InFlight == 400 })
	second, third := background(extend(3*time.Minute)), background(extend(4*time.Minute))
	p.Delay(faultproxy.Carried("EVALSHA"), 15*time.Millisecond, 0)
	p.Resume()
	for _, f := range []<-chan error{first, second, third} {
		if err := receive(t, f); err != nil {
			t.Error(err)
		}
	}
	if left := time.Until(h.ValidUntil()); left < 3*time.Minute {
		t.Errorf("valid for %v", left)
	}
	_ = h.Unlock(ctxT(t))
	clean(t, s, e)
}
