package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/pawl-lock/pawl/engine"
)

func ExampleEngine_FencedMutex() {
	server := startRedis() // stands in for redis://127.0.0.1:6379
	defer server.Close()

	ctx := context.Background()
	eng, err := engine.Open(ctx, server.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()

	// A store that refuses what comes late: it keeps the highest token that has written.
	stored, highest := "", int64(0)
	write := func(text string, token int64) error {
		if token < highest {
			return errors.New("refused: a later holder has written")
		}
		stored, highest = text, token
		return nil
	}

	orders := eng.FencedMutex("orders:42")
	first, err := orders.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("first:", write("paid", first.Token()))
	if err := first.Unlock(ctx); err != nil {
		log.Fatal(err)
	}

	err = orders.Do(ctx, func(ctx context.Context, h *engine.Hold) error {
		return write("shipped", h.Token())
	})
	fmt.Println("second:", err)

	// A holder that does not know that its lock was lost.
	fmt.Println("first, late:", write("paid", first.Token()))
	fmt.Println("stored:", stored)
	// Output:
	// first: <nil>
	// second: <nil>
	// first, late: refused: a later holder has written
	// stored: shipped
}
