package pawlotel_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/plugin/pawlotel"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
}

// traced is an engine whose spans go to the exporter.
func traced(t testing.TB, opts ...pawlotel.Option) (*engine.Engine, *trace.TracerProvider, *tracetest.InMemoryExporter) {
	t.Helper()
	out := tracetest.NewInMemoryExporter()
	tp := trace.NewTracerProvider(trace.WithSyncer(out))
	cfg, err := engine.ParseURL(redistest.Start(t).URL())
	must(t, err)
	cfg.Observer = pawlotel.New(append(opts, pawlotel.TracerProvider(tp))...)
	e, err := engine.New(context.Background(), cfg)
	must(t, err)
	t.Cleanup(func() { _ = e.Close() })
	return e, tp, out
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// spans waits for n spans, and returns them in the order of their ends.
func spans(t testing.TB, out *tracetest.InMemoryExporter, n int) tracetest.SpanStubs {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); len(out.GetSpans()) < n; time.Sleep(5 * time.Millisecond) { // between two looks
		if time.Now().After(end) {
			t.Fatalf("%d spans after 20s, want %d", len(out.GetSpans()), n)
		}
	}
	return out.GetSpans()
}

func find(t testing.TB, all tracetest.SpanStubs, name string) tracetest.SpanStub {
	t.Helper()
	for _, s := range all {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no span %s among %d", name, len(all))
	return tracetest.SpanStub{}
}

func attributes(s tracetest.SpanStub) map[string]string {
	all := make(map[string]string)
	for _, kv := range s.Attributes {
		all[string(kv.Key)] = kv.Value.String()
	}
	return all
}

func TestObserver_Do_SpansAreChildrenOfTheCaller(t *testing.T) {
	t.Parallel()
	e, tp, out := traced(t)
	tracer := tp.Tracer("service")
	ctx, request := tracer.Start(context.Background(), "request")
	must(t, e.FencedMutex("orders:42").Do(ctx, func(ctx context.Context, h *engine.Hold) error {
		_, work := tracer.Start(ctx, "work")
		work.End()
		var none context.Context // the hold's own
		_, more := tracer.Start(h.Context(none), "more work")
		more.End()
		return nil
	}))
	request.End()
	all := spans(t, out, 6)
	acquire, hold, release := find(t, all, "lock.acquire"), find(t, all, "lock.hold"), find(t, all, "lock.release")
	for _, s := range []tracetest.SpanStub{acquire, hold, release} {
		if s.Parent.SpanID() != request.SpanContext().SpanID() {
			t.Errorf("%s is a child of %v", s.Name, s.Parent.SpanID())
		}
		if got := attributes(s); got["lock.name"] != "orders:42" || got["lock.kind"] != "fenced" {
			t.Errorf("%s: %v", s.Name, got)
		}
	}
	for _, name := range []string{"work", "more work"} {
		if s := find(t, all, name); s.Parent.SpanID() != hold.SpanContext.SpanID() {
			t.Errorf("%s is a child of %v", name, s.Parent.SpanID())
		}
	}
	if got := attributes(acquire); got["lock.outcome"] != "granted" || got["lock.attempts"] != "1" || got["lock.token"] != "1" || got["lock.owner"] == "" {
		t.Errorf("acquire: %v", got)
	}
	if acquire.EndTime.Before(acquire.StartTime) || hold.StartTime != acquire.EndTime || hold.EndTime.Before(hold.StartTime) || release.EndTime.Before(release.StartTime) {
		t.Errorf("acquire %v to %v, hold %v to %v, release %v to %v", acquire.StartTime, acquire.EndTime, hold.StartTime, hold.EndTime, release.StartTime, release.EndTime)
	}
}

func TestObserver_Refused_NamesTheHolder(t *testing.T) {
	t.Parallel()
	e, _, out := traced(t)
	h, err := e.Mutex("x").Lock(context.Background())
	must(t, err)
	if _, err := e.Mutex("x").TryLock(context.Background()); err == nil {
		t.Fatal("it was granted twice")
	}
	refused := spans(t, out, 2)[1]
	if got := attributes(refused); got["lock.outcome"] != "refused" || got["lock.holder"] != h.Owner() {
		t.Errorf("%v", got)
	}
	if refused.Status.Code != codes.Unset {
		t.Errorf("a refusal is no failure: %v", refused.Status)
	}
	if _, err := e.Mutex("x").Lock(context.Background(), engine.Lease(-1)); err == nil {
		t.Fatal("a lease of -1")
	}
	if failed := spans(t, out, 3)[2]; failed.Status.Code != codes.Error || failed.Status.Description == "" {
		t.Errorf("a mistake: %+v", failed.Status)
	}
}

func TestObserver_Lost_HoldFails(t *testing.T) {
	t.Parallel()
	e, _, out := traced(t)
	h, err := e.Mutex("x").Lock(context.Background(), engine.Lease(100*time.Millisecond))
	must(t, err)
	<-h.Done()
	hold := find(t, spans(t, out, 2), "lock.hold")
	if hold.Status.Code != codes.Error || attributes(hold)["lock.lost"] != "lease_ended" {
		t.Errorf("%+v, %v", hold.Status, attributes(hold))
	}
}

// The tries of one lock of several are the engine's own affair, unless somebody wants to see them.
func TestParts_MultiLock_IsOneUnlessAskedFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		opts []pawlotel.Option
		want int
	}{{nil, 3}, {[]pawlotel.Option{pawlotel.Parts()}, 7}} {
		e, _, out := traced(t, c.opts...)
		h, err := e.LockMany(context.Background(), []string{"a", "b"})
		must(t, err)
		must(t, h.Unlock(context.Background()))
		must(t, e.Close()) // by then all are reported
		all := spans(t, out, c.want)
		if len(all) != c.want {
			t.Errorf("%d spans, want %d", len(all), c.want)
		}
		whole := 0
		for _, s := range all {
			if attributes(s)["lock.kind"] == "multilock" {
				whole++
			}
		}
		if whole != 3 {
			t.Errorf("%d spans of the whole", whole)
		}
	}
}

func TestNameAttribute_Empty_ShowsNoName(t *testing.T) {
	t.Parallel()
	e, _, out := traced(t, pawlotel.NameAttribute(func(string) string { return "" }))
	must(t, e.Mutex("secret").Do(context.Background(), func(context.Context, *engine.Hold) error { return nil }))
	for _, s := range spans(t, out, 3) {
		for _, kv := range s.Attributes {
			if kv.Key == attribute.Key("lock.name") {
				t.Errorf("%s names %v", s.Name, kv.Value.String())
			}
		}
	}
}

func TestObserver_ServiceUnderLoad_EndsEverySpan(t *testing.T) {
	t.Parallel()
	e, tp, out := traced(t)
	const workers, each = 20, 50
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := range each {
				ctx, request := tp.Tracer("service").Start(context.Background(), "request")
				m := e.Mutex(fmt.Sprint("x", (w+i)%7))
				if i%2 == 0 {
					must(t, m.Do(ctx, func(context.Context, *engine.Hold) error { return nil }))
				} else {
					h, err := m.LockAsync(ctx).Await(ctx)
					must(t, err)
					_, err = h.UnlockAsync().Await(ctx)
					must(t, err)
				}
				request.End()
			}
		})
	}
	all.Wait()
	must(t, e.Close())
	if n := len(spans(t, out, 4*workers*each)); n != 4*workers*each {
		t.Errorf("%d spans, want %d", n, 4*workers*each)
	}
}

// What is not sampled leaves no trace in the context either.
func TestObserver_NotSampled_ContextIsTheCallers(t *testing.T) {
	t.Parallel()
	out := tracetest.NewInMemoryExporter()
	tp := trace.NewTracerProvider(trace.WithSyncer(out), trace.WithSampler(trace.ParentBased(trace.NeverSample())))
	cfg, err := engine.ParseURL(redistest.Start(t).URL())
	must(t, err)
	cfg.Observer = pawlotel.New(pawlotel.TracerProvider(tp))
	e, err := engine.New(context.Background(), cfg)
	must(t, err)
	t.Cleanup(func() { _ = e.Close() })
	ctx, request := tp.Tracer("service").Start(context.Background(), "request")
	must(t, e.Mutex("x").Do(ctx, func(ctx context.Context, _ *engine.Hold) error {
		if got := oteltrace.SpanContextFromContext(ctx); !got.Equal(request.SpanContext()) {
			t.Errorf("fn has the span %v", got.SpanID())
		}
		return nil
	}))
	if n := len(out.GetSpans()); n != 0 {
		t.Errorf("%d spans", n)
	}
}

// Two of them, for two backends.
func TestObserver_TwoOfOneEngine_EachEndsItsSpans(t *testing.T) {
	t.Parallel()
	var out [2]*tracetest.InMemoryExporter
	var all [2]engine.Observer
	for i := range out {
		out[i] = tracetest.NewInMemoryExporter()
		all[i] = pawlotel.New(pawlotel.TracerProvider(trace.NewTracerProvider(trace.WithSyncer(out[i]))))
	}
	cfg, err := engine.ParseURL(redistest.Start(t).URL())
	must(t, err)
	cfg.Observer = engine.Observers(all[0], all[1])
	e, err := engine.New(context.Background(), cfg)
	must(t, err)
	t.Cleanup(func() { _ = e.Close() })
	must(t, e.Mutex("x").Do(context.Background(), func(context.Context, *engine.Hold) error { return nil }))
	for i := range out {
		got := out[i].GetSpans()
		if len(got) != 3 {
			t.Errorf("%d has %d spans, want 3", i, len(got))
			continue
		}
		for _, name := range []string{"lock.acquire", "lock.hold", "lock.release"} {
			find(t, got, name)
		}
	}
}

// A name may be any bytes, but an exporter refuses a whole batch for one string that is not UTF-8.
func TestObserver_InvalidUTF8_IsReplaced(t *testing.T) {
	t.Parallel()
	e, _, out := traced(t)
	h, err := e.Mutex("x\xff").Lock(context.Background())
	must(t, err)
	if _, err := e.Mutex("x\xff").Lock(context.Background(), engine.Lease(-1)); err == nil {
		t.Fatal("a lease of -1")
	}
	must(t, h.Unlock(context.Background()))
	for _, s := range spans(t, out, 4) {
		for _, kv := range s.Attributes {
			if !utf8.ValidString(kv.Value.String()) {
				t.Errorf("%s: %s is %q", s.Name, kv.Key, kv.Value.String())
			}
		}
		if !utf8.ValidString(s.Status.Description) {
			t.Errorf("%s: %q", s.Name, s.Status.Description)
		}
	}
}
