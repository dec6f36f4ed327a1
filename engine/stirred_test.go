package engine

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/pace"
)

// A writer waits for a reader of its process, whose release is announced to nobody, as the server refuses the
// message: the writer tries at once. It was told of a lease of an hour.
func TestWriter_ReaderOfItsProcessMayNotPublish_TriesAtOnce(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	reader := mustLock(t, e.RWMutex("x").Reader(), Lease(time.Hour))
	writer := e.RWMutex("x").Writer().LockAsync(ctxT(t))
	// It tries once more when it listens: then it sleeps.
	tries := func() int64 { return s.CommandStats()["evalsha"] }
	eventually(t, "it listens", func() bool { return connected(e).Stats().ChannelsConfirmed > 0 })
	eventually(t, "it has tried again", func() bool { return tries() >= 3 && e.Stats().InFlight == 0 })
	s.Do("ACL", "SETUSER", "default", "-publish", "-spublish")
	released := pace.Now()
	mustUnlock(t, reader)
	h, err := writer.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	if d := released.Elapsed(); d > 5*time.Second { // its own look comes after 15 s at least
		t.Errorf("granted after %v", d)
	}
	mustUnlock(t, h)
}
