package quorum

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

func TestRefusalOf(t *testing.T) {
	t.Parallel()
	held, here := &lockerr.Held{TTL: time.Second}, &lockerr.Held{TTL: time.Second, Here: true}
	for _, c := range []struct {
		why  error
		want Refusal
	}{
		{held, Refusal{TTL: time.Second, State: Held, Passes: true}},
		{lockerr.Wrap(errStopped, here), Refusal{TTL: time.Second, State: Held, Passes: true, Here: true}},
		{lockerr.Wrap(lockerr.ErrUnavailable, errCut), Refusal{State: Unavailable, Passes: true}},
		{lockerr.ErrGrantTooLate, Refusal{Late: true, Passes: true}},
		{lockerr.NotAsked, Refusal{Passes: true}},
		{lockerr.ErrOverloaded, Refusal{Full: true}},
		{lockerr.ErrClosed, Refusal{Closed: true}},
		{lockerr.Wrap(errStopped, lockerr.ErrEarly), Refusal{}},
		{errBad, Refusal{}},
	} {
		c.want.Why = c.why
		if got := RefusalOf(c.why); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.why, got, c.want)
		}
	}
}
