package counters

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// One makes an attempt for more permits than there are. It does not wait, so it is in nobody's way:
// not even if the attempts share a command.
func TestSemaphore_TryAcquireRefused_RefusesNoOther(t *testing.T) {
	t.Parallel()
	_, p, e := testkit.Behind(t)
	s := e.Semaphore("s")
	testkit.MustSetPermits(t, s, 3)
	p.Delay(faultproxy.All, 20*time.Millisecond, 20*time.Millisecond)
	first := s.TryAcquireAsync(testkit.Ctx(t), 1) // the others share the next command
	tooMany, one := s.TryAcquireAsync(testkit.Ctx(t), 5), s.TryAcquireAsync(testkit.Ctx(t), 1)
	if _, err := first.Await(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
	if _, err := tooMany.Await(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
		t.Errorf("5 of 2: %v", err)
	}
	if _, err := one.Await(testkit.Ctx(t)); err != nil {
		t.Errorf("1 of 2: %v", err)
	}
}
