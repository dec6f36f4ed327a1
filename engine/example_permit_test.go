package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

func ExamplePermitSemaphore() {
	server := startRedis() // stands in for redis://127.0.0.1:6379
	defer server.Close()

	ctx := context.Background()
	eng, err := engine.Open(ctx, server.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()

	// All processes together send at most three reports at a time.
	reports := eng.PermitSemaphore("reports")
	if err := reports.SetPermits(ctx, 3); err != nil {
		log.Fatal(err)
	}

	// One permit, which the watchdog renews as long as this process lives.
	one, err := reports.Acquire(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}

	// Two more at once, for a minute at most.
	two, err := reports.TryAcquire(ctx, 2, engine.Lease(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("ids:", len(one.PermitIDs()), "and", len(two.PermitIDs()))

	_, err = reports.TryAcquire(ctx, 1)
	fmt.Println("none left:", errors.Is(err, engine.ErrHeld))

	if err := two.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	err = reports.Permits(1).Do(ctx, func(ctx context.Context, h *engine.Hold) error {
		n, err := reports.Available(ctx)
		fmt.Println("free:", n)
		return err
	})
	if err := errors.Join(err, one.Unlock(ctx)); err != nil {
		log.Fatal(err)
	}
	// Output:
	// ids: 1 and 2
	// none left: true
	// free: 1
}
