package multi

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

func TestExtendOfAMultiHold(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	h := testkit.MustLockMany(t, e, testkit.Names(50), engine.Lease(5*time.Second))
	if err := h.Extend(testkit.Ctx(t), time.Minute); err != nil {
		t.Fatal(err)
	}
	if left := time.Until(h.ValidUntil()); left < 50*time.Second {
		t.Errorf("valid for %v", left)
	}
	s.Do("DEL", "n7")
	err := h.Extend(testkit.Ctx(t), 2*time.Minute)
	var lost *engine.LostError
	if !errors.As(err, &lost) || lost.Name != "n7" {
		t.Errorf("Extend: %v", err)
	}
	testkit.Receive(t, h.Done())
	_ = h.Unlock(testkit.Ctx(t))
	testkit.Clean(t, s, e)
}

// Behind another Extend it takes the locks at the same time, too: not a round trip for each.
func TestExtendOfAMultiHoldBehindAnother(t *testing.T) {
	t.Parallel()
	s, p, e := testkit.Behind(t)
	h := testkit.MustLockMany(t, e, testkit.Names(400), engine.Lease(time.Minute))
	p.Pause(faultproxy.Carried("EVALSHA"))
	extend := func(d time.Duration) func() error { return func() error { return h.Extend(testkit.Ctx(t), d) } }
	first := testkit.Background(extend(2 * time.Minute))
	testkit.Eventually(t, "the first is out", func() bool { return e.Stats().InFlight == 400 })
	second, third := testkit.Background(extend(3*time.Minute)), testkit.Background(extend(4*time.Minute))
	p.Delay(faultproxy.Carried("EVALSHA"), 15*time.Millisecond, 0)
	p.Resume()
	for _, f := range []<-chan error{first, second, third} {
		if err := testkit.Receive(t, f); err != nil {
			t.Error(err)
		}
	}
	if left := time.Until(h.ValidUntil()); left < 3*time.Minute {
		t.Errorf("valid for %v", left)
	}
	_ = h.Unlock(testkit.Ctx(t))
	testkit.Clean(t, s, e)
}
