package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/fakenode"
)

// A release answered with garbage is not repeated as fast as the network goes.
func TestReleaseAnsweredWithGarbage(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	n.On(fakenode.Is("EVALSHA"), fakenode.Bulk("released, I think"))
	n.OnNext(1, fakenode.Is("EVALSHA"), fakenode.Int(-2))
	e := open(t, "redis://"+n.Addr()+"?close_timeout=500ms")
	h := mustLock(t, e.Mutex("x"), Lease(2*time.Second))
	if err := h.Unlock(ctxT(t)); !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("Unlock: %v, want ErrOutcomeUnknown", err)
	}
	if n := len(n.Commands(fakenode.Is("EVALSHA"))); n > 100 {
		t.Errorf("the server was asked %d times", n)
	}
}
