package pawlprom_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"regexp"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/embedded"
	"github.com/pawl-lock/pawl/plugin/pawlprom"
)

func Example() {
	server, err := embedded.Start("127.0.0.1:0") // stands in for redis://127.0.0.1:6379
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	ctx := context.Background()

	cfg, err := engine.ParseURL(server.URL())
	if err != nil {
		log.Fatal(err)
	}
	cfg.Observer = pawlprom.New(prometheus.DefaultRegisterer)
	eng, err := engine.New(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	http.Handle("/metrics", promhttp.Handler())

	err = eng.Mutex("orders:42").Do(ctx, func(context.Context, *engine.Hold) error { return nil })
	if err != nil {
		log.Fatal(err)
	}
	page := httptest.NewRecorder()
	http.DefaultServeMux.ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	fmt.Println(regexp.MustCompile(`pawl_acquire_duration_seconds_count.*`).FindString(page.Body.String()))
	// Output: pawl_acquire_duration_seconds_count{kind="mutex",outcome="granted"} 1
}
