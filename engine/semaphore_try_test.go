package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// One makes an attempt for more permits than there are. It does not wait, so it is in nobody's way:
// not even if the attempts share a command.
func TestATryAcquireThatIsRefusedRefusesNoOther(t *testing.T) {
	t.Parallel()
	_, p, e := behind(t)
	s := e.Semaphore("s")
	mustSet(t, s, 3)
	p.Delay(faultproxy.All, 20*time.Millisecond, 20*time.Millisecond)
	first := s.TryAcquireAsync(ctxT(t), 1) // the others share the next command
	tooMany, one := s.TryAcquireAsync(ctxT(t), 5), s.TryAcquireAsync(ctxT(t), 1)
	if _, err := first.Await(ctxT(t)); err != nil {
		t.Error(err)
	}
	if _, err := tooMany.Await(ctxT(t)); !errors.Is(err, ErrHeld) {
		t.Errorf("5 of 2: %v", err)
	}
	if _, err := one.Await(ctxT(t)); err != nil {
		t.Errorf("1 of 2: %v", err)
	}
}
