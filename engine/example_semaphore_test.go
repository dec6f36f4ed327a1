package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/pawl-lock/pawl/engine"
)

func ExampleSemaphore() {
	server := startRedis() // stands in for redis://127.0.0.1:6379
	defer server.Close()

	ctx := context.Background()
	eng, err := engine.Open(ctx, server.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()

	// All processes together make at most three exports at a time. The first process that
	// says so gives the semaphore its permits.
	exports := eng.Semaphore("exports")
	if _, err := exports.TrySetPermits(ctx, 3); err != nil {
		log.Fatal(err)
	}

	large, err := exports.Acquire(ctx, 2) // this one counts as two
	if err != nil {
		log.Fatal(err)
	}
	small, err := exports.Acquire(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	_, err = exports.TryAcquire(ctx, 1)
	fmt.Println("none left:", errors.Is(err, engine.ErrHeld))

	// A waiter gets its permits when enough of them have come back.
	next := exports.AcquireAsync(ctx, 3)
	if err := errors.Join(large.Release(ctx), small.Release(ctx)); err != nil {
		log.Fatal(err)
	}
	all, err := next.Await(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := all.Release(ctx); err != nil {
		log.Fatal(err)
	}
	n, err := exports.Available(ctx)
	fmt.Println("free:", n, err)
	// Output:
	// none left: true
	// free: 3 <nil>
}
