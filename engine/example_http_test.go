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
// request's context ends the waiting when the client goes away. The answer is written
// when Do has returned: before that nobody knows whether the lock was held to the end.
func ExampleMutex_Do_httpHandler() {
	server := startRedis()
	defer server.Close()
	ctx := context.Background()
	eng, err := engine.Open(ctx, server.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()

	charge := func(ctx context.Context, id string) error {
		if id == "44" { // somebody removes the lock meanwhile
			_, err := eng.Mutex("orders:44").ForceUnlock(ctx)
			return err
		}
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}/pay", func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		err := eng.Mutex("orders:"+id).Do(r.Context(), func(ctx context.Context, h *engine.Hold) error {
			return charge(ctx, id) // ctx ends with the request, or with the lock
		}, engine.Wait(time.Second))
		switch {
		case err == nil:
			fmt.Fprintln(w, "paid")
		case !errors.Is(err, engine.ErrNotRun):
			// The function has run: it failed, or the lock was lost under it.
			http.Error(w, "please check the order", http.StatusInternalServerError)
		case errors.Is(err, engine.ErrHeld):
			http.Error(w, "this order is being paid", http.StatusConflict)
		default:
			http.Error(w, "try again later", http.StatusServiceUnavailable)
		}
	})
	pay := func(path string) {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("POST", path, nil))
		fmt.Print(w.Code, " ", w.Body)
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
	pay("/orders/44/pay")
	// Output:
	// 200 paid
	// 409 this order is being paid
	// 500 please check the order
}
