package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/pawl-lock/pawl/engine"
)

func ExampleRedLock() {
	ctx := context.Background()
	a := startRedis() // stands in for redis://127.0.0.1:6379
	defer a.Close()

	b := startRedis() // stands in for redis://127.0.0.1:6380
	defer b.Close()

	c := startRedis() // stands in for redis://127.0.0.1:6381
	defer c.Close()

	// An engine for each server: those of this process, and of another.
	var mine, theirs []engine.Mutex
	for _, url := range []string{a.URL(), b.URL(), c.URL()} {
		for _, locks := range []*[]engine.Mutex{&mine, &theirs} {
			eng, err := engine.Open(ctx, url)
			if err != nil {
				log.Fatal(err)
			}
			defer eng.Close()
			*locks = append(*locks, eng.Mutex("orders:42"))
		}
	}

	h, err := engine.RedLock(mine...).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(h, "has a majority:", len(h.Servers()) >= 2)

	_, err = engine.RedLock(theirs...).TryLock(ctx)
	fmt.Println("held by another:", errors.Is(err, engine.ErrHeld))
	fmt.Println(h.Unlock(ctx))
	// Output:
	// Hold("orders:42" on 3 servers) has a majority: true
	// held by another: true
	// <nil>
}
