package engine_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/pawl-lock/pawl/engine"
)

func ExampleLatch() {
	server := startRedis() // stands in for redis://127.0.0.1:6379
	defer server.Close()

	ctx := context.Background()
	eng, err := engine.Open(ctx, server.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()

	// Closed until two workers are ready, in whatever processes they are.
	ready := eng.Latch("ready")
	if _, err := ready.TrySetCount(ctx, 2); err != nil {
		log.Fatal(err)
	}
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			if err := ready.CountDown(ctx); err != nil {
				log.Print(err)
			}
		})
	}
	if err := ready.Await(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("both are ready")
	workers.Wait()
	// Output:
	// both are ready
}
