package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/pawl-lock/pawl/engine"
)

func ExampleRWMutex() {
	server := startRedis() // stands in for redis://127.0.0.1:6379
	defer server.Close()

	ctx := context.Background()
	eng, err := engine.Open(ctx, server.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()

	prices := eng.RWMutex("prices")

	// Any number may read at the same time, in any process.
	ann, err := prices.Reader().Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	ben, err := prices.Reader().Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = prices.Writer().TryLock(ctx)
	fmt.Println("two read; may I write?", !errors.Is(err, engine.ErrHeld))
	ann.Unlock(ctx)
	ben.Unlock(ctx)

	// One writes, and goes on to read what it wrote: nobody else writes in between.
	w, err := prices.Writer().Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	r, err := prices.Downgrade(ctx, w)
	if err != nil {
		log.Fatal(err)
	}
	cem, err := prices.Reader().Lock(ctx)
	fmt.Println("downgraded; may others read?", err == nil)
	cem.Unlock(ctx)
	r.Unlock(ctx)
	// Output:
	// two read; may I write? false
	// downgraded; may others read? true
}
