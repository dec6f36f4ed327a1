package faults

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
)

// The key of a lock is deleted without a message, and its holder, whose lease would last for an hour, does not
// find out. A waiter elsewhere asks by itself; one of the holder's process looks at the hold, which ends.
func TestWaiter_KeyDeleted_IsServedWithin30s(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	elsewhere, holder := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
	there, here := testkit.MustLock(t, holder.Mutex("there"), engine.Lease(time.Hour)), testkit.MustLock(t, holder.Mutex("here"), engine.Lease(time.Hour))
	waits := []*engine.Future[*engine.Hold]{elsewhere.Mutex("there").LockAsync(testkit.Within(t, time.Minute)), holder.Mutex("here").LockAsync(testkit.Within(t, time.Minute))}
	for _, e := range []*engine.Engine{elsewhere, holder} {
		testkit.Eventually(t, "it listens, and sleeps", func() bool {
			return testkit.Client(e).Stats().ChannelsConfirmed == 1 && e.Stats().InFlight == 0
		})
	}
	s.Do("DEL", "there", "here")
	began := cputime.Now()
	for i, f := range waits {
		h, err := f.Await(testkit.Within(t, time.Minute))
		if err != nil {
			t.Fatal(i, err)
		}
		if d := began.Elapsed(); d > lock.LongestSleep+2*time.Second {
			t.Errorf("waiter %d was served after %v", i, d)
		}
		testkit.MustUnlock(t, h)
	}
	testkit.WantLost(t, "the hold of the same process", here.Err(), engine.RemovedOnServer)
	testkit.WantLost(t, "Unlock of the other", there.Unlock(testkit.Ctx(t)), engine.RemovedOnServer)
}
