package engine_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

func ExampleEngine_SpinMutex() {
	server := startRedis() // stands in for redis://127.0.0.1:6379
	defer server.Close()

	ctx := context.Background()
	eng, err := engine.Open(ctx, server.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()

	// One lock for each upload: very many names, and hardly anybody waits.
	upload := eng.SpinMutex("upload:8f31")
	h, err := upload.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}

	// A waiter polls after about 2 ms, then less and less often, up to every 50 ms.
	next := upload.LockAsync(ctx, engine.Backoff(2*time.Millisecond, 50*time.Millisecond))
	if err := h.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	h, err = next.Await(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("it is the next one's turn")
	if err := h.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// it is the next one's turn
}
