package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// Shutdown refuses new work, waits for the holders, and closes.
func ExampleEngine_Shutdown() {
	server := startRedis()
	defer server.Close()
	ctx := context.Background()
	eng, err := engine.Open(ctx, server.URL())
	if err != nil {
		log.Fatal(err)
	}

	h, err := eng.Mutex("job").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		<-time.After(50 * time.Millisecond) // the job goes on
		fmt.Println("the job is done:", h.Err())
		h.UnlockAsync()
	}()

	deadline, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := eng.Shutdown(deadline); err != nil {
		log.Fatal(err) // holders that were still there were told, and are released
	}
	fmt.Println("shut down")
	_, err = eng.Mutex("job").Lock(ctx)
	fmt.Println("refused:", errors.Is(err, engine.ErrClosed))
	// Output:
	// the job is done: <nil>
	// shut down
	// refused: true
}
