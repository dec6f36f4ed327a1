package engine_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

func Example() {
	server := startRedis() // stands in for redis://127.0.0.1:6379
	defer server.Close()

	ctx := context.Background()
	eng, err := engine.Open(ctx, server.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()

	// Run a function under the lock. The lease is renewed until it returns. If the
	// lock is lost before that, the function's ctx ends.
	orders := eng.Mutex("orders:42")
	err = orders.Do(ctx, func(ctx context.Context, h *engine.Hold) error {
		fmt.Println("alone with order 42")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}

	// Or lock and unlock by hand: wait for at most a second, hold for at most ten.
	h, err := orders.Lock(ctx, engine.Wait(time.Second), engine.Lease(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("alone again")
	if err := h.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// alone with order 42
	// alone again
}
