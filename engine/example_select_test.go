package engine_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// A future has a channel, so waiting for a lock goes into a select beside anything
// else. Abandon a future that you do not want any more.
func ExampleFuture_Done_select() {
	server := startRedis()
	defer server.Close()
	ctx := context.Background()
	eng, err := engine.Open(ctx, server.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	busy, err := eng.Mutex("printer:1").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}

	first := eng.Mutex("printer:1").LockAsync(ctx)
	second := eng.Mutex("printer:2").LockAsync(ctx)
	select {
	case <-first.Done():
		fmt.Println("the first printer")
	case <-second.Done():
		fmt.Println("the second printer")
	case <-time.After(10 * time.Second):
		fmt.Println("no printer")
	}
	// Pending, it is cancelled; granted, or granted later, it is released.
	first.Abandon()
	second.Abandon()

	// AwaitAny does all that.
	_, h, err := engine.AwaitAny(ctx,
		eng.Mutex("printer:1").LockAsync(ctx),
		eng.Mutex("printer:2").LockAsync(ctx))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("printing on", h.Name())
	for _, h := range []*engine.Hold{h, busy} {
		if err := h.Unlock(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// the second printer
	// printing on printer:2
}
