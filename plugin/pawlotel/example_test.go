package pawlotel_test

import (
	"context"
	"fmt"
	"log"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest" // stands in for "go.opentelemetry.io/otel/exporters/stdout/stdouttrace"

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

	ctx := context.Background()
	exporter := tracetest.NewInMemoryExporter() // stands in for exporter, err := stdouttrace.New()
	if err != nil {
		log.Fatal(err)
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter))
	defer provider.Shutdown(ctx) // exports what is left
	otel.SetTracerProvider(provider)

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
	if err := provider.ForceFlush(ctx); err != nil {
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
