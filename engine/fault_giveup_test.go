package engine

import (
	"errors"
	"testing"
	"time"

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
	steady(t, func(t testing.TB) {
		s, p, e := behind(t, short, func(c *Config) { c.CommandTimeout = time.Second })
		h := mustLock(t, e.Mutex("x"))
		busy := p.ReplaceReply(releaseOf("x"), []byte("-BUSY Redis is busy\r\n"), 1)
		f := h.UnlockAsync()
		busy.Wait(1)
		p.Blackhole(faultproxy.All)
		if _, err := f.Await(ctxT(t)); !errors.Is(err, ErrOutcomeUnknown) {
			t.Fatalf("Unlock: %v", err)
		}
		eventually(t, "the connection was given up", func() bool { return !connected(e).Up(0, 0) })
		p.Heal()
		mustUnlock(t, mustLock(t, e.Mutex("x")))
		eventually(t, "nothing is left", func() bool { return s.Do("DBSIZE") == int64(0) })
	})
}
