package engine

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// names counts what is kept of names: in the table, and in the lists of recovery.
func names(e *Engine) (known, listed int) {
	for _, l := range e.table.Recovery.View().Lanes {
		listed += len(l.Urgent) + len(l.Tries)
	}
	return e.table.Resources(), listed
}

// In an outage of hours a service may ask for millions of names, each for a moment.
func TestNothingIsKeptOfNamesThatNobodyWantsDuringAnOutage(t *testing.T) {
	t.Parallel()
	s, p, e, _ := behindOn(t, patient)
	waits := e.Mutex("waits")
	p.Down()
	eventually(t, "the lanes are down", func() bool { return !connected(e).Up(0, 0) && !e.table.Client.LaneOf(waits.route).Up() })
	stays := waits.LockAsync(ctxT(t))
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
	h, err := stays.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, h)
	eventually(t, "nothing is kept", func() bool {
		known, listed := names(e)
		return known+listed == 0
	})
	// The names work as ever.
	for i := range 10 {
		mustUnlock(t, mustLock(t, e.Mutex(fmt.Sprint("n", i)), Lease(time.Hour)))
	}
	clean(t, s)
}
