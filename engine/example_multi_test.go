package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/pawl-lock/pawl/engine"
)

// The items of an order are locked together: all of them, or none.
func ExampleEngine_LockMany() {
	server := startRedis()
	defer server.Close()
	ctx := context.Background()
	eng, err := engine.Open(ctx, server.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()

	order, err := eng.LockMany(ctx, []string{"item:3", "item:1", "item:2"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(order)

	// Somebody else wants one of them, and gets none.
	_, err = eng.TryLockMany(ctx, []string{"item:7", "item:2"})
	var refused *engine.NotAcquiredError
	if errors.As(err, &refused) {
		fmt.Println(refused.Name, "is held:", errors.Is(err, engine.ErrHeld))
	}
	fmt.Println(order.Unlock(ctx))
	// Output:
	// MultiHold("item:1", "item:2", "item:3")
	// item:2 is held: true
	// <nil>
}

// Locks on two servers, taken as one.
func ExampleMulti() {
	one, two := startRedis(), startRedis()
	defer one.Close()
	defer two.Close()
	ctx := context.Background()
	stock, err := engine.Open(ctx, one.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer stock.Close()
	money, err := engine.Open(ctx, two.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer money.Close()

	both := engine.Multi(stock.Mutex("item:1"), money.Mutex("account:7"))
	err = both.Do(ctx, func(ctx context.Context, h *engine.MultiHold) error {
		fmt.Println("inside, with", h)
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// inside, with MultiHold("item:1", "account:7")
	// <nil>
}
