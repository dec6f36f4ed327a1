package engine_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// Every replica of a service starts the same job at the same time; one runs it.
// MinHold keeps the lock for a while even if the job is done at once, for the
// replica whose clock is late.
func ExampleMutex_TryDo_cronJob() {
	server := startRedis()
	defer server.Close()
	ctx := context.Background()

	nightly := func(replica *engine.Engine) error {
		_, err := replica.Mutex("cron:nightly").TryDo(ctx, func(context.Context, *engine.Hold) error {
			fmt.Println("the nightly job runs")
			return nil
		}, engine.MinHold(20*time.Second))
		return err
	}

	for range 3 {
		replica, err := engine.Open(ctx, server.URL())
		if err != nil {
			log.Fatal(err)
		}
		defer replica.Close()
		if err := nightly(replica); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// the nightly job runs
}
