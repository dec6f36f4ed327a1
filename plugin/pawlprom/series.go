package pawlprom

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pawl-lock/pawl/engine"
)

// series is what is counted for one kind, and one label name if there are any.
type series struct {
	kind, name string
	acquired   [engine.Failed + 1]lazy       // by outcome
	ended      [engine.EngineClosed + 1]lazy // by reason; 0: released
	released   [2]lazy                       // failed, and not
}

// seriesSet has all series.
type seriesSet struct {
	// kinds are those without a name, ten at most: to go through these takes less time than to look one up in a
	// map. It is replaced when one is added.
	kinds atomic.Pointer[[]*series]
	mu    sync.Mutex // to add one

	named sync.Map // seriesKey to *series
}

type seriesKey struct{ kind, name string }

// ofKind is the series of a kind, without a name.
func (s *seriesSet) ofKind(kind string) *series {
	for _, one := range s.withoutName() {
		if one.kind == kind {
			return one
		}
	}
	return s.add(kind)
}

func (s *seriesSet) add(kind string) *series {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.withoutName()
	for _, one := range before {
		if one.kind == kind { // meanwhile
			return one
		}
	}
	all := append(before[:len(before):len(before)], &series{kind: kind})
	s.kinds.Store(&all)
	return all[len(before)]
}

func (s *seriesSet) withoutName() []*series {
	if all := s.kinds.Load(); all != nil {
		return *all
	}
	return nil
}

// of is the series of a kind and a name.
func (s *seriesSet) of(kind, name string) *series {
	k := seriesKey{kind, name}
	if found, ok := s.named.Load(k); ok {
		return found.(*series)
	}
	made, _ := s.named.LoadOrStore(k, &series{kind: kind, name: name})
	return made.(*series)
}

// collect sends what is counted.
func (s *seriesSet) collect(o *Observer, to chan<- prometheus.Metric) {
	for _, one := range s.withoutName() {
		one.collect(o, to, func(between string) []string { return []string{one.kind, between} })
	}
	s.named.Range(func(_, v any) bool {
		one := v.(*series)
		one.collect(o, to, func(between string) []string { return []string{one.kind, between, one.name} })
		return true
	})
}

func (s *series) collect(o *Observer, to chan<- prometheus.Metric, labels func(between string) []string) {
	for outcome := range s.acquired {
		if h := s.acquired[outcome].made.Load(); h != nil {
			to <- h.metric(o.acquire, labels(engine.Outcome(outcome).String())...)
		}
	}
	for reason := range s.ended {
		h := s.ended[reason].made.Load()
		switch {
		case h == nil:
		case reason == 0:
			to <- h.metric(o.hold, labels("released")...)
		default:
			code := engine.LostReason(reason).Code()
			to <- h.metric(o.hold, labels(code)...)
			to <- prometheus.MustNewConstMetric(o.lost, prometheus.CounterValue, float64(h.count()), labels(code)...)
		}
	}
	for ok := range s.released {
		if h := s.released[ok].made.Load(); h != nil {
			to <- h.metric(o.release, labels(result(ok == 1))...)
		}
	}
}
