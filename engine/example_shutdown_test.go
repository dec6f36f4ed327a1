package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// A service that is told to stop: first the HTTP server, whose running requests may still need a
// lock; then the loops that hold one until their context ends; the engine last.
func ExampleEngine_Shutdown() {
	server := startRedis()
	defer server.Close()
	ctx := context.Background()
	eng, err := engine.Open(ctx, server.URL())
	if err != nil {
		log.Fatal(err)
	}

	requested := make(chan struct{})
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(requested)
		<-time.After(50 * time.Millisecond) // the request goes on while the service stops
		_, err := eng.Mutex("orders:42").TryDo(r.Context(), func(context.Context, *engine.Hold) error { return nil })
		fmt.Println("the request is served:", err)
	})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go srv.Serve(listener)

	leading, resign := context.WithCancel(ctx)
	leads := make(chan struct{})
	var loops sync.WaitGroup
	loops.Go(func() {
		err := eng.Mutex("leader").Do(leading, func(ctx context.Context, h *engine.Hold) error {
			close(leads)
			<-ctx.Done() // lead until told to stop, or until the lock is lost
			return nil
		})
		fmt.Println("the leader has resigned:", err)
	})
	<-leads
	go func() {
		if resp, err := http.Get("http://" + listener.Addr().String()); err == nil {
			resp.Body.Close()
		}
	}()
	<-requested

	// SIGTERM.
	deadline, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := srv.Shutdown(deadline); err != nil {
		log.Print(err)
	}
	resign()
	loops.Wait()
	if err := eng.Shutdown(deadline); err != nil {
		log.Print(err) // holders that were still there were told, and are released
	}
	fmt.Println("shut down")
	_, err = eng.Mutex("job").Lock(ctx)
	fmt.Println("refused:", errors.Is(err, engine.ErrClosed))
	// Output:
	// the request is served: <nil>
	// the leader has resigned: <nil>
	// shut down
	// refused: true
}
