package engine_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/pawl-lock/pawl/engine"
)

func ExampleEngine_FairMutex() {
	server := startRedis() // stands in for redis://127.0.0.1:6379
	defer server.Close()

	ctx := context.Background()
	eng, err := engine.Open(ctx, server.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()

	tickets := eng.FairMutex("tickets")
	first, err := tickets.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}

	// Three come while it is taken, one after the other. It does not matter which process
	// they are of.
	var served sync.WaitGroup
	for _, name := range []string{"Ann", "Ben", "Cem"} {
		served.Add(1)
		tickets.LockAsync(ctx).OnComplete(func(h *engine.Hold, err error) {
			defer served.Done()
			if err != nil {
				log.Print(err)
				return
			}
			fmt.Println(name)
			h.UnlockAsync()
		})
	}
	fmt.Println("the first has it")
	if err := first.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	served.Wait()
	// Output:
	// the first has it
	// Ann
	// Ben
	// Cem
}
