package pawlotel

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawl-lock/pawl/engine"
)

// scope is the name of the instrumentation.
const scope = "github.com/pawl-lock/pawl/plugin/pawlotel"

// Option changes what New returns.
type Option func(*observer)

// TracerProvider makes the spans with p instead of the global provider.
func TracerProvider(p trace.TracerProvider) Option {
	return func(o *observer) { o.tracer = p.Tracer(scope) }
}

// NameAttribute sets the attribute lock.name to of(name), or leaves it out if that is empty. Without this option it is the
// name.
func NameAttribute(of func(name string) string) Option {
	return func(o *observer) { o.name = of }
}

// Parts also traces each try of the parts of Multi, LockMany and RedLock.
func Parts() Option { return func(o *observer) { o.parts = true } }

// New returns an Observer for Config.Observer. It serves any number of engines.
func New(opts ...Option) engine.Observer {
	o := &observer{name: func(name string) string { return name }}
	for _, set := range opts {
		set(o)
	}
	if o.tracer == nil {
		o.tracer = otel.GetTracerProvider().Tracer(scope)
	}
	return o
}

type observer struct {
	tracer trace.Tracer
	name   func(string) string
	parts  bool
}

// spans are those of one acquisition. They are its context: the span that this carries is the caller's
// until the grant, and that of the hold after it.
type spans struct {
	context.Context // with the span of the caller
	of              *observer
	acquire         trace.Span
	hold            trace.Span
	identity        trace.SpanStartEventOption
	holding         atomic.Pointer[context.Context] // with the span of the hold
}

// Value implements context.Context. The key is the observer: an engine may have several.
func (s *spans) Value(key any) any {
	if key == s.of {
		return s
	}
	if in := s.holding.Load(); in != nil {
		return (*in).Value(key)
	}
	return s.Context.Value(key)
}

// AcquireStart implements engine.Observer.
func (o *observer) AcquireStart(ctx context.Context, a engine.Acquisition) context.Context {
	if a.PartOf != "" && !o.parts {
		return ctx
	}
	about := []attribute.KeyValue{attribute.String("lock.kind", a.Kind)}
	if name := o.name(a.Name); name != "" {
		about = append(about, text("lock.name", name))
	}
	identity := trace.WithAttributes(about...)
	_, acquire := o.tracer.Start(ctx, "lock.acquire", identity)
	if !acquire.IsRecording() {
		return ctx
	}
	return &spans{Context: ctx, of: o, identity: identity, acquire: acquire}
}

// AcquireEnd implements engine.Observer.
func (o *observer) AcquireEnd(ctx context.Context, a engine.Acquisition, end engine.AcquireEnd) {
	s := o.spansOf(ctx, a)
	if s == nil {
		return
	}
	s.acquire.SetAttributes(acquired(a, end)...)
	switch end.Outcome {
	case engine.Unavailable, engine.Closed, engine.Invalid, engine.Failed:
		s.acquire.SetStatus(codes.Error, valid(end.Err.Error()))
	}
	s.acquire.End(trace.WithTimestamp(end.Time))
	if end.Outcome == engine.Granted {
		var in context.Context
		in, s.hold = o.tracer.Start(s.Context, "lock.hold", s.identity, trace.WithTimestamp(end.Time))
		s.holding.Store(&in)
	}
}

// valid is a text that an exporter takes: of one that is not UTF-8 it refuses the whole batch.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// text is an attribute of what others wrote.
func text(key, value string) attribute.KeyValue { return attribute.String(key, valid(value)) }

// acquired are the attributes of a result.
func acquired(a engine.Acquisition, end engine.AcquireEnd) []attribute.KeyValue {
	all := []attribute.KeyValue{
		attribute.String("lock.outcome", end.Outcome.String()),
		attribute.Int("lock.attempts", end.Attempts),
	}
	if end.HandedOver {
		all = append(all, attribute.Bool("lock.handed_over", true))
	}
	if end.Reentry {
		all = append(all, attribute.Bool("lock.reentry", true))
	}
	if a.Permits != 0 {
		all = append(all, attribute.Int("lock.permits", a.Permits))
	}
	if owner := end.Owner(); owner != "" {
		all = append(all, attribute.String("lock.owner", owner))
	}
	if end.Token != 0 {
		all = append(all, attribute.Int64("lock.token", end.Token))
	}
	if a.PartOf != "" {
		all = append(all, attribute.String("lock.part_of", a.PartOf))
	}
	var refused *engine.NotAcquiredError
	if errors.As(end.Err, &refused) && refused.Holder != "" {
		all = append(all, text("lock.holder", refused.Holder))
	}
	return all
}

// HoldEnd implements engine.Observer.
func (o *observer) HoldEnd(ctx context.Context, a engine.Acquisition, end engine.HoldEnd) {
	s := o.spansOf(ctx, a)
	if s == nil || s.hold == nil {
		return
	}
	if s.hold.IsRecording() {
		all := []attribute.KeyValue{attribute.Float64("lock.wait_ms", float64(end.Wait.Microseconds())/1000)}
		if owner := end.Owner(); owner != "" {
			all = append(all, attribute.String("lock.owner", owner))
		}
		if end.Reason != 0 {
			all = append(all, attribute.String("lock.lost", end.Reason.Code()))
			s.hold.SetStatus(codes.Error, "the lock was lost: "+end.Reason.String())
		}
		s.hold.SetAttributes(all...)
	}
	s.hold.End(trace.WithTimestamp(end.Time))
}

// ReleaseEnd implements engine.Observer.
func (o *observer) ReleaseEnd(ctx context.Context, a engine.Acquisition, end engine.ReleaseEnd) {
	s := o.spansOf(ctx, a)
	if s == nil {
		return
	}
	_, release := o.tracer.Start(s.Context, "lock.release", s.identity, trace.WithTimestamp(end.Time.Add(-end.Took)))
	if end.Err != nil {
		release.SetStatus(codes.Error, valid(end.Err.Error()))
	}
	release.End(trace.WithTimestamp(end.Time))
}

// spansOf are those of the acquisition that an event is about; nil if it is not traced. The context of a
// part is that of its whole, if parts are not traced.
func (o *observer) spansOf(ctx context.Context, a engine.Acquisition) *spans {
	if a.PartOf != "" && !o.parts {
		return nil
	}
	s, _ := ctx.Value(o).(*spans)
	return s
}

// RenewEnd implements engine.Observer: renewals belong to no acquisition.
func (*observer) RenewEnd(engine.RenewEnd) {}

// ConnChange implements engine.Observer.
func (*observer) ConnChange(engine.ConnChange) {}
