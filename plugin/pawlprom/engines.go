package pawlprom

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pawl-lock/pawl/engine"
)

// engines collects the Stats of all engines, added up. What one that was closed has counted stays, or the
// counters would go down.
type engines struct {
	mu     sync.Mutex
	open   []*engine.Engine
	closed totals
}

// totals are the counters of engines.
type totals [10]uint64

// statistics are what is shown of engine.Stats.
var statistics = [len(totals{})]struct {
	desc *prometheus.Desc
	of   func(*engine.Stats) uint64
}{
	{statistic("commands_total", "Commands that were sent."), func(s *engine.Stats) uint64 { return s.Commands }},
	{statistic("handed_over_total", "Grants that another holder of the process handed over, and readers that joined others."), func(s *engine.Stats) uint64 { return s.HandedOver }},
	{statistic("redirects_total", "Commands that another node of the cluster had to take."), func(s *engine.Stats) uint64 { return s.Redirects }},
	{statistic("reconnects_total", "Connections that came back."), func(s *engine.Stats) uint64 { return uint64(s.Reconnects) }},
	{statistic("compensations_total", "Releases of owners that nobody wanted, and of holds that were lost."), func(s *engine.Stats) uint64 { return s.Compensations }},
	{statistic("in_doubt_total", "Compensations whose acquire had an unknown outcome."), func(s *engine.Stats) uint64 { return s.InDoubt }},
	{statistic("unknown_outcomes_total", "Unlocks and operations on counts whose outcome is unknown."), func(s *engine.Stats) uint64 { return s.UnknownOutcomes }},
	{statistic("not_acked_total", "Grants, re-entries and extensions that too few replicas acknowledged."), func(s *engine.Stats) uint64 { return s.NotAcked }},
	{statistic("leaked_total", "Holds that were dropped without Unlock."), func(s *engine.Stats) uint64 { return s.Leaked }},
	{statistic("events_dropped_total", "Calls of the Observer and of the logger that did not fit into their queue."), func(s *engine.Stats) uint64 { return s.EventsDropped }},
}

var (
	held      = statistic("held", "Locks that are held: re-entries, and each lock of several, included.")
	waiting   = statistic("waiting", "Acquisitions without a result: of each lock of several, if these are.")
	oldest    = statistic("oldest_hold_seconds", "How long the oldest hold has been held; 0 if there is none.")
	connected = statistic("servers_connected", "Servers whose connections are all up.")
	down      = statistic("servers_down", "Servers that miss a connection.")
)

func statistic(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("pawl_"+name, help, nil, nil)
}

func (t *totals) add(s *engine.Stats) {
	for i := range statistics {
		t[i] += statistics[i].of(s)
	}
}

func (e *engines) add(one *engine.Engine) {
	e.mu.Lock()
	e.open = append(e.open, one)
	e.mu.Unlock()
}

func (e *engines) describe(to chan<- *prometheus.Desc) {
	for _, s := range statistics {
		to <- s.desc
	}
	for _, d := range []*prometheus.Desc{held, waiting, oldest, connected, down} {
		to <- d
	}
}

func (e *engines) collect(to chan<- prometheus.Metric) {
	e.mu.Lock()
	defer e.mu.Unlock()
	sum := e.closed
	var now struct {
		held, waiting, up, missing int
		oldest                     time.Duration
	}
	open := e.open[:0]
	for _, one := range e.open {
		closing := errors.Is(one.Ready(), engine.ErrClosed)
		s := one.Stats()
		sum.add(&s)
		if closing && s.Connected == 0 && s.Held == 0 { // Shutdown waits for holders, and counts on
			e.closed.add(&s)
			continue
		}
		open = append(open, one)
		now.held, now.waiting, now.oldest = now.held+s.Held, now.waiting+s.Waiting, max(now.oldest, s.OldestHold)
		now.up, now.missing = now.up+s.Connected, now.missing+len(s.DownSince)
	}
	clear(e.open[len(open):])
	e.open = open
	for i, s := range statistics {
		to <- prometheus.MustNewConstMetric(s.desc, prometheus.CounterValue, float64(sum[i]))
	}
	gauge := func(desc *prometheus.Desc, v float64) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v)
	}
	gauge(held, float64(now.held))
	gauge(waiting, float64(now.waiting))
	gauge(oldest, now.oldest.Seconds())
	gauge(connected, float64(now.up))
	gauge(down, float64(now.missing))
}
