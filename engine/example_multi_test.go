package engine_test

import (
	"context"
	"fmt"
	"log"

	"github.com/pawl-lock/pawl/engine"
)

func ExampleMulti() {
	ctx := context.Background()
	one := startRedis() // stands in for redis://127.0.0.1:6379
	defer one.Close()

	two := startRedis() // stands in for redis://127.0.0.1:6380
	defer two.Close()

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

	// Locks on two servers, taken as one.
	both := engine.Multi(stock.Mutex("item:1"), money.Mutex("account:7"))
	err = both.Do(ctx, func(ctx context.Context, h *engine.Hold) error {
		fmt.Println("inside, with", h)
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// inside, with Hold("item:1", "account:7")
	// <nil>
}
