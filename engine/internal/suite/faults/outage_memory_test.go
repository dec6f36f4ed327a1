package faults

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// names counts what is kept of names: in the table, and in the lists of recovery.
func names(e *engine.Engine) (known, listed int) {
	in := testkit.Inside(e)
	return in.Names, in.Listed
}

// In an outage of hours a service may ask for millions of names, each for a moment.
func TestNothingIsKeptOfNamesThatNobodyWantsDuringAnOutage(t *testing.T) {
	t.Parallel()
	s, p, e, _ := testkit.BehindInTime(t, testkit.Patient)
	waits := e.Mutex("waits")
	p.Down()
	testkit.Eventually(t, "the lanes are down", func() bool {
		return !testkit.Client(e).Up(0, 0) && !testkit.Client(e).LaneOf(testkit.Client(e).Route(waits.Name())).Up()
	})
	stays := waits.LockAsync(testkit.Ctx(t))
	const n = 2000
	for i := range n {
		ctx, cancel := context.WithCancel(context.Background())
		f := e.Mutex(fmt.Sprint("n", i)).LockAsync(ctx)
		cancel()
		<-f.Done()
	}
	known, listed := names(e)
	if known != 1 || listed > n/4 {
		t.Errorf("%d names are known and %d listed, one is waited for", known, listed)
	}
	p.Up()
	h, err := stays.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	testkit.MustUnlock(t, h)
	testkit.Eventually(t, "nothing is kept", func() bool {
		known, listed := names(e)
		return known+listed == 0
	})
	// The names work as ever.
	for i := range 10 {
		testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex(fmt.Sprint("n", i)), engine.Lease(time.Hour)))
	}
	testkit.Clean(t, s)
}
