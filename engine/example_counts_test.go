package engine_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"sync/atomic"

	"github.com/pawl-lock/pawl/engine"
)

// Three exports at a time, however many processes there are.
func ExampleSemaphore() {
	server := startRedis()
	defer server.Close()
	ctx := context.Background()
	eng, err := engine.Open(ctx, server.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()

	exports := eng.Semaphore("exports")
	if _, err := exports.SetPermits(ctx, 3); err != nil { // the first process that says so
		log.Fatal(err)
	}
	var running, tooMany atomic.Int32
	export := func() error {
		p, err := exports.Acquire(ctx, 1)
		if err != nil {
			return err
		}
		defer p.Release(context.WithoutCancel(ctx))
		if running.Add(1) > 3 {
			tooMany.Add(1)
		}
		running.Add(-1)
		return nil
	}

	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if err := export(); err != nil {
				log.Fatal(err)
			}
		})
	}
	all.Wait()
	free, err := exports.Available(ctx)
	fmt.Println(free, err, tooMany.Load())
	// Output:
	// 3 <nil> 0
}

// One waits until two are ready.
func ExampleLatch() {
	server := startRedis()
	defer server.Close()
	ctx := context.Background()
	eng, err := engine.Open(ctx, server.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()

	ready := eng.Latch("ready")
	if _, err := ready.TrySetCount(ctx, 2); err != nil { // two workers are to be ready
		log.Fatal(err)
	}
	for range 2 {
		go func() {
			if err := ready.CountDown(ctx); err != nil {
				log.Fatal(err)
			}
		}()
	}
	if err := ready.Await(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("all are ready")
	// Output:
	// all are ready
}
