package pawlprom_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"

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

	err = eng.Mutex("orders:42").Do(ctx, func(context.Context, *engine.Hold) error { return nil })
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("/metrics", promhttp.Handler())
	printAcquisitions(http.DefaultServeMux) // stands in for log.Fatal(http.ListenAndServe("127.0.0.1:2112", nil))
	// Output: pawl_acquire_duration_seconds_count{kind="mutex",outcome="granted"} 1
}

func ExampleNameLabel() {
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
	registry := prometheus.NewRegistry()
	cfg.Observer = pawlprom.New(registry, pawlprom.NameLabel(func(name string) string {
		group, _, _ := strings.Cut(name, ":")
		return group + ":*" // orders:42 is orders:*
	}))
	eng, err := engine.New(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()

	err = eng.Mutex("orders:42").Do(ctx, func(context.Context, *engine.Hold) error { return nil })
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	printAcquisitions(mux)
	// Output: pawl_acquire_duration_seconds_count{kind="mutex",name="orders:*",outcome="granted"} 1
}

// printAcquisitions prints how many acquisitions Prometheus would see.
func printAcquisitions(metrics http.Handler) {
	page := httptest.NewRecorder()
	metrics.ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	fmt.Println(regexp.MustCompile(`pawl_acquire_duration_seconds_count.*`).FindString(page.Body.String()))
}
