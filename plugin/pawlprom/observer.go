package pawlprom

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pawl-lock/pawl/engine"
)

// Observer is an engine.Observer and a prometheus.Collector. All methods may be called by any
// goroutine.
type Observer struct {
	nameLabel func(string) string // nil: names are no label

	acquire, hold, release *prometheus.HistogramVec
	lost, handedOver       *prometheus.CounterVec
	renewalLag             prometheus.Histogram
	renewal                *prometheus.HistogramVec
	connectionsLost        *prometheus.CounterVec

	series  seriesSet
	oldest  holdList
	engines engines
}

var _ engine.Observer = (*Observer)(nil)

// Option changes an Observer.
type Option func(*Observer)

// NameLabel adds a label name to the metrics that have a kind: what of makes of the lock's name. It
// must have few results, since each is a series of its own:
//
//	pawlprom.NameLabel(func(name string) string { // orders:42 is orders:*
//		kind, _, _ := strings.Cut(name, ":")
//		return kind + ":*"
//	})
//
// It is called for each acquisition, on the caller's goroutine. What is not UTF-8 in its result, which is no
// label, becomes U+FFFD.
func NameLabel(of func(name string) string) Option {
	return func(o *Observer) { o.nameLabel = of }
}

// buckets are from 100 µs to a minute: a round trip, and a lease.
var buckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// New returns an Observer whose metrics are registered with reg. It panics if they cannot be,
// because other metrics have their names.
func New(reg prometheus.Registerer, opts ...Option) *Observer {
	o := new(Observer)
	for _, set := range opts {
		set(o)
	}
	labels := func(more ...string) []string {
		all := append([]string{"kind"}, more...)
		if o.nameLabel != nil {
			all = append(all, "name")
		}
		return all
	}
	o.acquire = histograms("acquire_duration_seconds", "How long acquisitions took, from the call to the result.", labels("outcome"))
	o.hold = histograms("hold_duration_seconds", "How long locks were held, by how that ended.", labels("end"))
	o.release = histograms("release_duration_seconds", "How long Unlock waited for its answer.", labels("result"))
	o.lost = counters("lost_total", "Holds that were lost before they were unlocked.", labels("reason"))
	o.handedOver = counters("handed_over_total", "Grants that another holder of the process handed over, and readers that joined others.", labels())
	o.renewal = histograms("renewal_duration_seconds", "How long renewals took, from the command to the answer.", []string{"result"})
	o.renewalLag = prometheus.NewHistogram(histogramOf("renewal_lag_seconds", "How late renewals were sent."))
	o.connectionsLost = counters("connections_lost_total", "Connections that were lost.", []string{"role"})
	o.series.init(o, labels())
	o.oldest.init()

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

func histograms(name, help string, labels []string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(histogramOf(name, help), labels)
}

// histogramOf is one with buckets, and with those of a native histogram where the server takes them.
func histogramOf(name, help string) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Namespace: "pawl", Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
	}
}

func counters(name, help string, labels []string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "pawl", Name: name, Help: help}, labels)
}

// Attach adds the counters of the engine. New of package engine calls it.
func (o *Observer) Attach(e *engine.Engine) { o.engines.add(e) }

// acquisition is one acquisition in the context of its events, with its place among the holds.
type acquisition struct {
	context.Context
	series *series
	held   heldHold
}

// Value implements context.Context. The key is the Observer: an engine may have several.
func (a *acquisition) Value(key any) any {
	if key == a.series.observer {
		return a
	}
	return a.Context.Value(key)
}

// AcquireStart implements engine.Observer.
func (o *Observer) AcquireStart(ctx context.Context, a engine.Acquisition) context.Context {
	if a.PartOf != "" {
		return ctx
	}
	own := &acquisition{Context: ctx, series: o.series.of(a.Kind, a.Name)}
	own.series.waiting.Add(1)
	return own
}

// AcquireEnd implements engine.Observer.
func (o *Observer) AcquireEnd(ctx context.Context, a engine.Acquisition, end engine.AcquireEnd) {
	own := o.ofEvent(ctx, a)
	if own == nil {
		return
	}
	own.series.waiting.Add(-1)
	own.series.acquired(end.Outcome).Observe(end.Wait.Seconds())
	if end.Outcome != engine.Granted {
		return
	}
	own.series.held.Add(1)
	o.oldest.add(&own.held, end.Time)
	if end.HandedOver {
		own.series.handedOver().Inc()
	}
}

// HoldEnd implements engine.Observer.
func (o *Observer) HoldEnd(ctx context.Context, a engine.Acquisition, end engine.HoldEnd) {
	own := o.ofEvent(ctx, a)
	if own == nil {
		return
	}
	own.series.held.Add(-1)
	o.oldest.remove(&own.held)
	own.series.ended(end.Reason).Observe(end.Held.Seconds())
	if end.Reason != 0 {
		o.lost.WithLabelValues(own.series.labels(end.Reason.Code())...).Inc()
	}
}

// ReleaseEnd implements engine.Observer.
func (o *Observer) ReleaseEnd(ctx context.Context, a engine.Acquisition, end engine.ReleaseEnd) {
	if own := o.ofEvent(ctx, a); own != nil {
		own.series.released(end.Err == nil).Observe(end.Took.Seconds())
	}
}

// ofEvent is the acquisition of an event; nil of a part, whose context is that of the whole.
func (o *Observer) ofEvent(ctx context.Context, a engine.Acquisition) *acquisition {
	if a.PartOf != "" {
		return nil
	}
	own, _ := ctx.Value(o).(*acquisition)
	return own
}

// RenewEnd implements engine.Observer.
func (o *Observer) RenewEnd(end engine.RenewEnd) {
	o.renewalLag.Observe(end.Lag.Seconds())
	o.renewal.WithLabelValues(result(end.Err == nil)).Observe(end.RTT.Seconds())
}

// ConnChange implements engine.Observer.
func (o *Observer) ConnChange(change engine.ConnChange) {
	if !change.Up {
		o.connectionsLost.WithLabelValues(change.Role).Inc()
	}
}

func result(ok bool) string {
	if ok {
		return "ok"
	}
	return "error"
}

// Describe implements prometheus.Collector.
func (o *Observer) Describe(to chan<- *prometheus.Desc) {
	for _, c := range o.collectors() {
		c.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (o *Observer) Collect(to chan<- prometheus.Metric) {
	for _, c := range o.collectors() {
		c.Collect(to)
	}
}

func (o *Observer) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		o.acquire, o.hold, o.release, o.lost, o.handedOver, o.renewal, o.renewalLag, o.connectionsLost,
		&o.series, &o.oldest, &o.engines,
	}
}
