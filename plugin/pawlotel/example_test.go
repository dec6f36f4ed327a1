package pawlotel_test

import (
	"context"
	"fmt"
	"log"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/embedded"
	"github.com/pawl-lock/pawl/plugin/pawlotel"
)

func Example() {
	server, err := embedded.Start("127.0.0.1:0") // stands in for redis://127.0.0.1:6379
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	exporter := tracetest.NewInMemoryExporter() // or that of OTLP
	ctx := context.Background()

	otel.SetTracerProvider(trace.NewTracerProvider(trace.WithSyncer(exporter)))
	cfg, err := engine.ParseURL(server.URL())
	if err != nil {
		log.Fatal(err)
	}
	cfg.Observer = pawlotel.New()
	eng, err := engine.New(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()

	err = eng.Mutex("orders:42").Do(ctx, func(context.Context, *engine.Hold) error { return nil })
	if err != nil {
		log.Fatal(err)
	}
	for _, span := range exporter.GetSpans() {
		fmt.Println(span.Name)
	}
	// Output:
	// lock.acquire
	// lock.hold
	// lock.release
}
