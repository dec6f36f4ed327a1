package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/pawl-lock/pawl/engine"
)

// One lock on three servers that know nothing of each other. One of them dies.
func ExampleRedLock() {
	ctx := context.Background()
	var locks, others []engine.Mutex
	var kill func()
	for range 3 {
		server := startRedis()
		defer server.Close()
		kill = server.Close
		for _, to := range []*[]engine.Mutex{&locks, &others} { // this process, and another
			eng, err := engine.Open(ctx, server.URL())
			if err != nil {
				log.Fatal(err)
			}
			defer eng.Close()
			*to = append(*to, eng.Mutex("orders:42"))
		}
	}
	kill()

	h, err := engine.RedLock(locks...).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(h, "is held at", len(h.Servers()))

	_, err = engine.RedLock(others...).TryLock(ctx)
	fmt.Println("another gets it:", !errors.Is(err, engine.ErrHeld))

	fmt.Println(h.Unlock(ctx))
	// Output:
	// QuorumHold("orders:42" on 3 servers) is held at 2
	// another gets it: false
	// <nil>
}
