package engine

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/redistest"
)

// A release with a MinHold makes the lease shorter. A server that refuses the rest of it, for want
// of a right, has told the waiters by then: they sleep until the lease that they know of.
func TestWaitersHearOfAMinHoldWhoseReleaseIsRefused(t *testing.T) {
	t.Parallel()
	for kind, lock := range map[string]func(e *Engine) Mutex{
		"mutex":  func(e *Engine) Mutex { return e.Mutex("x") },
		"fenced": func(e *Engine) Mutex { return e.FencedMutex("x") },
		"writer": func(e *Engine) Mutex { return e.RWMutex("x").Writer() },
	} {
		for _, right := range []string{"hset", "hdel"} {
			t.Run(kind+" without "+right, func(t *testing.T) {
				t.Parallel()
				s := redistest.Start(t)
				s.Do("ACL", "SETUSER", "bob", "on", ">secret", "~*", "&*", "+@all")
				holder, waiter := open(t, "redis://bob:secret@"+s.Addr()), open(t, s.URL())
				h := mustLock(t, lock(holder), Lease(time.Minute), MinHold(4*time.Second))
				waits := lock(waiter).LockAsync(ctxT(t))
				eventually(t, "it sleeps", func() bool { return waiter.sleepsOnMessagesForTest("x") })
				s.Do("ACL", "SETUSER", "bob", "-"+right)
				h.UnlockAsync()
				if _, err := waits.Await(ctxT(t)); err != nil {
					t.Errorf("the waiter: %v", err)
				}
			})
		}
	}
}
