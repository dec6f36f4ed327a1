package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// A long job stops when its lock is lost: here an operator takes it away.
func ExampleHold_Done_longJob() {
	server := startRedis()
	defer server.Close()
	ctx := context.Background()
	// A short lease, so that the loss is noticed within the example.
	eng, err := engine.Open(ctx, server.URL()+"?lease=3s")
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()

	h, err := eng.Mutex("reindex").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	// For work that takes a context: it ends with the hold.
	work := h.Context(ctx)

	operator, err := engine.Open(ctx, server.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer operator.Close()
	taken, err := operator.Mutex("reindex").ForceUnlock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("force-unlocked:", taken)

	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for lost := false; !lost; {
		select {
		case <-tick.C: // a step of the job
		case <-h.Done():
			lost = true
		}
	}
	var why *engine.LostError
	if errors.As(h.Err(), &why) {
		fmt.Println("stopped:", why.Reason)
	}
	<-work.Done()
	fmt.Println("the context knows, too:", errors.Is(context.Cause(work), engine.ErrLost))
	fmt.Println("nothing to unlock:", errors.Is(h.Unlock(ctx), engine.ErrLost))
	// Output:
	// force-unlocked: true
	// stopped: the server does not have it any more
	// the context knows, too: true
	// nothing to unlock: true
}
