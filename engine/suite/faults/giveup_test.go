package faults

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/kit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// The server refuses a release and swallows its repetition. When the lease is over
// the release is given up while its command is still out; what becomes of that
// command concerns nobody:
//
//	release -> BUSY: from now on bound by the lease
//	release again: no answer
//	the lease is over: Unlock is told ErrOutcomeUnknown
//	the command timeout: an answer for nobody
func TestReleaseGivenUpWhileItsCommandIsOutIsSurvived(t *testing.T) {
	t.Parallel()
	kit.Steady(t, func(t testing.TB) {
		s, p, e := kit.Behind(t, short, func(c *engine.Config) { c.CommandTimeout = time.Second })
		h := kit.MustLock(t, e.Mutex("x"))
		busy := p.ReplaceReply(kit.ReleaseOf("x"), []byte("-BUSY Redis is busy\r\n"), 1)
		f := h.UnlockAsync()
		busy.Wait(1)
		p.Blackhole(faultproxy.All)
		if _, err := f.Await(kit.Ctx(t)); !errors.Is(err, engine.ErrOutcomeUnknown) {
			t.Fatalf("Unlock: %v", err)
		}
		kit.Eventually(t, "the connection was given up", func() bool { return !kit.Client(e).Up(0, 0) })
		p.Heal()
		kit.MustUnlock(t, kit.MustLock(t, e.Mutex("x")))
		kit.Eventually(t, "nothing is left", func() bool { return s.Do("DBSIZE") == int64(0) })
	})
}
