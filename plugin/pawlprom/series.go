package pawlprom

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pawl-lock/pawl/engine"
)

// seriesSet has what is counted for each kind, and for each label name. It collects the gauges.
type seriesSet struct {
	observer      *Observer
	all           sync.Map // seriesKey to *series
	held, waiting *prometheus.Desc
}

type seriesKey struct{ kind, name string }

func (s *seriesSet) init(o *Observer, labels []string) {
	s.observer = o
	s.held = prometheus.NewDesc("pawl_held", "Locks that are held, re-entries included.", labels, nil)
	s.waiting = prometheus.NewDesc("pawl_waiting", "Acquisitions without a result.", labels, nil)
}

// of is the series of a lock.
func (s *seriesSet) of(kind, name string) *series {
	k := seriesKey{kind: kind}
	if label := s.observer.nameLabel; label != nil {
		k.name = strings.ToValidUTF8(label(name), "\uFFFD")
	}
	if found, ok := s.all.Load(k); ok {
		return found.(*series)
	}
	made, _ := s.all.LoadOrStore(k, &series{key: k, observer: s.observer})
	return made.(*series)
}

// Describe implements prometheus.Collector.
func (s *seriesSet) Describe(to chan<- *prometheus.Desc) {
	to <- s.held
	to <- s.waiting
}

// Collect implements prometheus.Collector.
func (s *seriesSet) Collect(to chan<- prometheus.Metric) {
	s.all.Range(func(_, v any) bool {
		one := v.(*series)
		to <- prometheus.MustNewConstMetric(s.held, prometheus.GaugeValue, float64(one.held.Load()), one.labels()...)
		to <- prometheus.MustNewConstMetric(s.waiting, prometheus.GaugeValue, float64(one.waiting.Load()), one.labels()...)
		return true
	})
}

// series is what is counted for one kind and one label name. The metrics are looked up once: that takes
// as long as all the rest of an event.
type series struct {
	key           seriesKey
	observer      *Observer
	held, waiting atomic.Int64

	byOutcome [engine.Failed + 1]cached[prometheus.Observer]
	byEnd     [engine.EngineClosed + 1]cached[prometheus.Observer]
	byResult  [2]cached[prometheus.Observer]
	passedOn  cached[prometheus.Counter]
}

// cached is a metric that is looked up when it is needed first.
type cached[M any] struct{ found atomic.Pointer[M] }

func (c *cached[M]) get(look func() M) M {
	if m := c.found.Load(); m != nil {
		return *m
	}
	m := look()
	c.found.Store(&m)
	return m
}

// labels are kind, what is in between, and name.
func (s *series) labels(between ...string) []string {
	all := append([]string{s.key.kind}, between...)
	if s.observer.nameLabel != nil {
		all = append(all, s.key.name)
	}
	return all
}

func (s *series) acquired(o engine.Outcome) prometheus.Observer {
	return s.byOutcome[min(o, engine.Failed)].get(func() prometheus.Observer {
		return s.observer.acquire.WithLabelValues(s.labels(o.String())...)
	})
}

func (s *series) ended(why engine.LostReason) prometheus.Observer {
	return s.byEnd[min(why, engine.EngineClosed)].get(func() prometheus.Observer {
		end := "released"
		if why != 0 {
			end = why.Code()
		}
		return s.observer.hold.WithLabelValues(s.labels(end)...)
	})
}

func (s *series) released(ok bool) prometheus.Observer {
	i := 0
	if ok {
		i = 1
	}
	return s.byResult[i].get(func() prometheus.Observer {
		return s.observer.release.WithLabelValues(s.labels(result(ok))...)
	})
}

func (s *series) handedOver() prometheus.Counter {
	return s.passedOn.get(func() prometheus.Counter { return s.observer.handedOver.WithLabelValues(s.labels()...) })
}
