package pawlprom

import (
	"context"
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pawl-lock/pawl/engine"
)

// Observer is an engine.Observer and a prometheus.Collector. All methods may be called by any
// goroutine.
type Observer struct {
	nameLabel func(string) string // nil: names are no label

	acquire, hold, release, lost, renewal, renewalLag *prometheus.Desc

	series          seriesSet
	renewals        [2]lazy // failed, and not
	lags            lazy
	connectionsLost *prometheus.CounterVec
	engines         engines
}

var _ engine.Observer = (*Observer)(nil)

// Option changes an Observer.
type Option func(*Observer)

// NameLabel adds a label name, of the value of(name), to the metrics that have a kind. It must have few results,
// since each is a series of its own:
//
//	pawlprom.New(registry, pawlprom.NameLabel(func(name string) string {
//		group, _, _ := strings.Cut(name, ":")
//		return group + ":*" // orders:42 is orders:*
//	}))
//
// It is called for each acquisition, on the caller's goroutine. What is not UTF-8 in its result, which is no
// label, becomes U+FFFD.
func NameLabel(of func(name string) string) Option {
	return func(o *Observer) { o.nameLabel = of }
}

// New returns an Observer whose metrics are registered with reg. It panics if they cannot be,
// because other metrics have their names.
func New(reg prometheus.Registerer, opts ...Option) *Observer {
	o := new(Observer)
	for _, set := range opts {
		set(o)
	}
	described := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("pawl_"+name, help, labels, nil)
	}
	ofKind := func(name, help, label string) *prometheus.Desc {
		if o.nameLabel != nil {
			return described(name, help, "kind", label, "name")
		}
		return described(name, help, "kind", label)
	}
	o.acquire = ofKind("acquire_duration_seconds", "How long acquisitions took, from the call to the result.", "outcome")
	o.hold = ofKind("hold_duration_seconds", "How long locks were held, by how that ended.", "end")
	o.release = ofKind("release_duration_seconds", "How long Unlock waited for its answer.", "result")
	o.lost = ofKind("lost_total", "Holds that were lost before they were unlocked.", "reason")
	o.renewal = described("renewal_duration_seconds", "How long renewals took, from the command to the answer.", "result")
	o.renewalLag = described("renewal_lag_seconds", "How late renewals were sent.")
	o.connectionsLost = prometheus.NewCounterVec(
		prometheus.CounterOpts{Namespace: "pawl", Name: "connections_lost_total", Help: "Connections that were lost."}, []string{"role"})

	err := reg.Register(o)
	var before prometheus.AlreadyRegisteredError
	switch {
	case errors.As(err, &before):
		if other, ok := before.ExistingCollector.(*Observer); ok {
			return other
		}
		panic(err)
	case err != nil:
		panic(err)
	}
	return o
}

// Attach adds the counters of the engine. New of package engine calls it.
func (o *Observer) Attach(e *engine.Engine) { o.engines.add(e) }

// labelled is the context of an acquisition if there is a NameLabel, which is called once.
type labelled struct {
	context.Context
	observer *Observer
	series   *series
}

// Value implements context.Context. The key is the Observer: an engine may have several.
func (l *labelled) Value(key any) any {
	if key == l.observer {
		return l
	}
	return l.Context.Value(key)
}

// AcquireStart implements engine.Observer.
func (o *Observer) AcquireStart(ctx context.Context, a engine.Acquisition) context.Context {
	if o.nameLabel == nil || a.PartOf != "" {
		return ctx
	}
	return &labelled{ctx, o, o.series.of(a.Kind, strings.ToValidUTF8(o.nameLabel(a.Name), "\uFFFD"))}
}

// AcquireEnd implements engine.Observer.
func (o *Observer) AcquireEnd(ctx context.Context, a engine.Acquisition, end engine.AcquireEnd) {
	if s := o.seriesOf(ctx, &a); s != nil {
		s.acquired[min(end.Outcome, engine.Failed)].observe(end.Wait)
	}
}

// HoldEnd implements engine.Observer.
func (o *Observer) HoldEnd(ctx context.Context, a engine.Acquisition, end engine.HoldEnd) {
	if s := o.seriesOf(ctx, &a); s != nil {
		s.ended[min(end.Reason, engine.EngineClosed)].observe(end.Held)
	}
}

// ReleaseEnd implements engine.Observer.
func (o *Observer) ReleaseEnd(ctx context.Context, a engine.Acquisition, end engine.ReleaseEnd) {
	if s := o.seriesOf(ctx, &a); s != nil {
		s.released[index(end.Err)].observe(end.Took)
	}
}

// seriesOf is the series of an event; nil of a part.
func (o *Observer) seriesOf(ctx context.Context, a *engine.Acquisition) *series {
	switch {
	case a.PartOf != "":
		return nil
	case o.nameLabel == nil:
		return o.series.ofKind(a.Kind)
	}
	if own, ok := ctx.Value(o).(*labelled); ok {
		return own.series
	}
	return nil
}

// RenewEnd implements engine.Observer.
func (o *Observer) RenewEnd(end engine.RenewEnd) {
	o.lags.observe(end.Lag)
	o.renewals[index(end.Err)].observe(end.RTT)
}

// ConnChange implements engine.Observer.
func (o *Observer) ConnChange(change engine.ConnChange) {
	if !change.Up {
		o.connectionsLost.WithLabelValues(change.Role).Inc()
	}
}

// index is where what has failed is counted, and what has not.
func index(err error) int {
	if err == nil {
		return 1
	}
	return 0
}

func result(ok bool) string {
	if ok {
		return "ok"
	}
	return "error"
}

// Describe implements prometheus.Collector.
func (o *Observer) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{o.acquire, o.hold, o.release, o.lost, o.renewal, o.renewalLag} {
		to <- d
	}
	o.connectionsLost.Describe(to)
	o.engines.describe(to)
}

// Collect implements prometheus.Collector.
func (o *Observer) Collect(to chan<- prometheus.Metric) {
	o.series.collect(o, to)
	if h := o.lags.made.Load(); h != nil {
		to <- h.metric(o.renewalLag)
	}
	for ok := range o.renewals {
		if h := o.renewals[ok].made.Load(); h != nil {
			to <- h.metric(o.renewal, result(ok == 1))
		}
	}
	o.connectionsLost.Collect(to)
	o.engines.collect(to)
}
