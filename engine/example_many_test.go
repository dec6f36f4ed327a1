package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/pawl-lock/pawl/engine"
)

func ExampleEngine_LockMany() {
	ctx := context.Background()
	server := startRedis() // stands in for redis://127.0.0.1:6379
	defer server.Close()

	eng, err := engine.Open(ctx, server.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()

	// The items of an order are locked together: all of them, or none.
	order, err := eng.LockMany(ctx, []string{"item:3", "item:1", "item:2"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(order)

	// Somebody else wants one of them, and gets none.
	_, err = eng.Many([]string{"item:7", "item:2"}...).TryLock(ctx)
	var refused *engine.NotAcquiredError
	if errors.As(err, &refused) {
		fmt.Println(refused.Name, "is held:", errors.Is(err, engine.ErrHeld))
	}
	fmt.Println(order.Unlock(ctx))
	// Output:
	// Hold("item:1", "item:2", "item:3")
	// item:2 is held: true
	// <nil>
}
