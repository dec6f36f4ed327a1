package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/pawl-lock/pawl/engine"
)

func ExampleHold_Context_reentry() {
	server := startRedis() // stands in for redis://127.0.0.1:6379
	defer server.Close()

	ctx := context.Background()
	eng, err := engine.Open(ctx, server.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()

	// It locks, and may be called by a function that holds the lock: the context tells.
	account := eng.Mutex("account:7")

	book := func(ctx context.Context, amount int) error {
		return account.Do(ctx, func(ctx context.Context, h *engine.Hold) error {
			st, err := account.State(ctx)
			if err != nil {
				return err
			}
			fmt.Printf("booked %d, held %d times\n", amount, st.Holders[0].Count)
			return nil
		})
	}

	if err := book(ctx, 100); err != nil {
		log.Fatal(err)
	}
	err = account.Do(ctx, func(ctx context.Context, h *engine.Hold) error {
		if err := book(ctx, -30); err != nil {
			return err
		}

		// Without re-entry, for code that must not run inside itself.
		_, err := account.TryLock(ctx, engine.NonReentrant())
		fmt.Println("not re-entrant:", errors.Is(err, engine.ErrReentry))

		// Detached from the hold, it waits like any other caller.
		_, err = account.TryLock(engine.Detach(ctx))
		fmt.Println("detached:", errors.Is(err, engine.ErrNotAcquired))
		return book(ctx, 30)
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// booked 100, held 1 times
	// booked -30, held 2 times
	// not re-entrant: true
	// detached: true
	// booked 30, held 2 times
}
