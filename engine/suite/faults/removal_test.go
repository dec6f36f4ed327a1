package faults

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/kit"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/internal/cputime"
)

// The key of a lock is deleted without a message, and its holder, whose lease would last for an hour, does not
// find out. A waiter elsewhere asks by itself; one of the holder's process looks at the hold, which ends.
func TestWaiter_KeyDeleted_IsServedWithin30s(t *testing.T) {
	t.Parallel()
	s := kit.Server(t)
	elsewhere, holder := kit.Open(t, s.URL()), kit.Open(t, s.URL())
	there, here := kit.MustLock(t, holder.Mutex("there"), engine.Lease(time.Hour)), kit.MustLock(t, holder.Mutex("here"), engine.Lease(time.Hour))
	waits := []*engine.Future[*engine.Hold]{elsewhere.Mutex("there").LockAsync(kit.Within(t, time.Minute)), holder.Mutex("here").LockAsync(kit.Within(t, time.Minute))}
	for _, e := range []*engine.Engine{elsewhere, holder} {
		kit.Eventually(t, "it listens, and sleeps", func() bool {
			return kit.Client(e).Stats().ChannelsConfirmed == 1 && e.Stats().InFlight == 0
		})
	}
	s.Do("DEL", "there", "here")
	began := cputime.Now()
	for i, f := range waits {
		h, err := f.Await(kit.Within(t, time.Minute))
		if err != nil {
			t.Fatal(i, err)
		}
		if d := began.Elapsed(); d > lock.LongestSleep+2*time.Second {
			t.Errorf("waiter %d was served after %v", i, d)
		}
		kit.MustUnlock(t, h)
	}
	kit.WantLost(t, "the hold of the same process", here.Err(), engine.GoneOnServer)
	kit.WantLost(t, "Unlock of the other", there.Unlock(kit.Ctx(t)), engine.GoneOnServer)
}
