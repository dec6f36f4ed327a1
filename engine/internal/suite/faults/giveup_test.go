package faults

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
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
	testkit.Steady(t, func(t testing.TB) {
		s, p, e := testkit.Behind(t, short, func(c *engine.Config) { c.CommandTimeout = time.Second })
		h := testkit.MustLock(t, e.Mutex("x"))
		busy := p.ReplaceReply(testkit.ReleaseOf("x"), []byte("-BUSY Redis is busy\r\n"), 1)
		f := h.UnlockAsync()
		busy.Wait(1)
		p.Blackhole(faultproxy.All)
		if _, err := f.Await(testkit.Ctx(t)); !errors.Is(err, engine.ErrOutcomeUnknown) {
			t.Fatalf("Unlock: %v", err)
		}
		testkit.Eventually(t, "the connection was given up", func() bool { return !testkit.Client(e).Up(0, 0) })
		p.Heal()
		testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x")))
		testkit.Eventually(t, "nothing is left", func() bool { return s.Do("DBSIZE") == int64(0) })
	})
}
