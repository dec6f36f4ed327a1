package pawlprom

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// holdList has all holds, the oldest first, to tell how old that is. It collects one gauge.
//
// Holds are granted almost in the order of their times, so one comes in at the end; what is a little out of
// order does not matter. It is several lists, or every grant and every Unlock of a process would wait for
// one lock.
type holdList struct {
	parts [16]struct {
		mu   sync.Mutex
		root heldHold
		_    [32]byte // a cache line of its own
	}
	oldest *prometheus.Desc
	now    func() time.Time
}

// heldHold is a place in a holdList.
type heldHold struct {
	next, prev *heldHold
	since      time.Time
	part       uint8
}

func (l *holdList) init() {
	l.oldest = prometheus.NewDesc("pawl_oldest_hold_seconds", "How long the oldest hold has been held; 0 if there is none.", nil, nil)
	l.now = time.Now
	for i := range l.parts {
		root := &l.parts[i].root
		root.next, root.prev = root, root
	}
}

func (l *holdList) add(h *heldHold, since time.Time) {
	h.since = since
	h.part = uint8(since.Nanosecond() >> 6 & (len(l.parts) - 1))
	p := &l.parts[h.part]
	p.mu.Lock()
	h.next, h.prev = &p.root, p.root.prev
	h.prev.next, p.root.prev = h, h
	p.mu.Unlock()
}

func (l *holdList) remove(h *heldHold) {
	p := &l.parts[h.part]
	p.mu.Lock()
	if h.next != nil {
		h.prev.next, h.next.prev = h.next, h.prev
		h.next, h.prev = nil, nil
	}
	p.mu.Unlock()
}

// Describe implements prometheus.Collector.
func (l *holdList) Describe(to chan<- *prometheus.Desc) { to <- l.oldest }

// Collect implements prometheus.Collector.
func (l *holdList) Collect(to chan<- prometheus.Metric) {
	now := l.now()
	var age time.Duration
	for i := range l.parts {
		p := &l.parts[i]
		p.mu.Lock()
		if first := p.root.next; first != &p.root {
			age = max(age, now.Sub(first.since))
		}
		p.mu.Unlock()
	}
	to <- prometheus.MustNewConstMetric(l.oldest, prometheus.GaugeValue, age.Seconds())
}
