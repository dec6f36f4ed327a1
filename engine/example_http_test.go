package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// A handler that works on one order at a time, in all processes together. The
// request's context ends the waiting when the client goes away.
func ExampleMutex_Do_httpHandler() {
	server := startRedis()
	defer server.Close()
	ctx := context.Background()
	eng, err := engine.Open(ctx, server.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()

	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}/pay", func(w http.ResponseWriter, r *http.Request) {
		lock := eng.Mutex("orders:" + r.PathValue("id"))
		err := lock.Do(r.Context(), func(ctx context.Context, h *engine.Hold) error {
			// Use ctx for what is done here: it ends with the request, or with the lock.
			fmt.Fprint(w, "paid")
			return nil
		}, engine.Wait(200*time.Millisecond))
		switch {
		case err == nil:
		case !errors.Is(err, engine.ErrNotAcquired):
			// The function has run: it failed, or the lock was lost under it.
			http.Error(w, "please check the order", http.StatusInternalServerError)
		case errors.Is(err, engine.ErrUnavailable):
			http.Error(w, "try again later", http.StatusServiceUnavailable)
		default:
			http.Error(w, "somebody else is at it", http.StatusConflict)
		}
	})
	pay := func(path string) {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("POST", path, nil))
		fmt.Println(w.Code, w.Body)
	}

	pay("/orders/42/pay")
	busy, err := eng.Mutex("orders:43").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	pay("/orders/43/pay")
	if err := busy.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 200 paid
	// 409 somebody else is at it
}
