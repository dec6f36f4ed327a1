package faults

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// A LockAsync whose command is on its way is nothing that the next one on its name may
// change: not even whether it is told at once that the lane is full.
func TestFuturesOfOneNameOnAFullLaneDoNotMeet(t *testing.T) {
	t.Parallel()
	_, e, _, gate := busyLane(t)
	defer gate.Open()
	for i := range 300 {
		m := e.Mutex(fmt.Sprint("n", i))
		var both sync.WaitGroup
		futures := make([]*engine.Future[*engine.Hold], 2)
		for k := range futures {
			both.Go(func() { futures[k] = m.LockAsync(testkit.Ctx(t)) })
		}
		both.Wait()
		notified := 0
		for _, f := range futures {
			if _, err := f.Result(); errors.Is(err, engine.ErrOverloaded) {
				notified++
			}
			f.Abandon()
		}
		if notified == 0 {
			t.Fatalf("name %d: neither was told that the lane is full", i)
		}
	}
}
