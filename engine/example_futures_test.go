package engine_test

import (
	"context"
	"fmt"
	"log"
	"runtime"
	"strconv"

	"github.com/pawl-lock/pawl/engine"
)

// Thousands of locks at once: no goroutine is started for any of them, and a few
// connections carry them all.
func ExampleMutex_LockAsync_thousands() {
	server := startRedis()
	defer server.Close()
	ctx := context.Background()
	eng, err := engine.Open(ctx, server.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()

	before := runtime.NumGoroutine()
	pending := make([]*engine.Future[*engine.Hold], 2000)
	for i := range pending {
		pending[i] = eng.Mutex("row:" + strconv.Itoa(i)).LockAsync(ctx)
	}
	fmt.Println("few goroutines more:", runtime.NumGoroutine()-before < 100)

	holds, err := engine.AwaitAll(ctx, pending...)
	if err != nil {
		log.Fatal(err) // the others were abandoned
	}
	fmt.Println(len(holds), "rows are locked")

	releases := make([]*engine.Future[struct{}], len(holds))
	for i, h := range holds {
		releases[i] = h.UnlockAsync()
	}
	if _, err := engine.AwaitAll(ctx, releases...); err != nil {
		log.Fatal(err)
	}
	fmt.Println(eng.Stats().Held, "are left")
	// Output:
	// few goroutines more: true
	// 2000 rows are locked
	// 0 are left
}
