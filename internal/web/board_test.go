package web

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Pages have cursors only, so what a slow one has not taken yet is the log.
func TestBoard_NobodyTakesAnything_IsBounded(t *testing.T) {
	b := newBoard()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	text := bytes.Repeat([]byte("x"), 10_000)
	for i := range 300 {
		var p publication
		for j := range 100 {
			p.set = append(p.set, &row{id: fmt.Sprint(j), json: text})
		}
		p.status = fmt.Append(nil, i)
		b.publish(p) // a megabyte
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 2*maxLogBytes {
		t.Errorf("the heap has grown by %d MiB", grown>>20)
	}
	if len(b.log) > maxLog || b.bytes > maxLogBytes || b.log[len(b.log)-1].number != 300 {
		t.Errorf("the log has %d entries of %d bytes", len(b.log), b.bytes)
	}
	if data, now, _ := b.next(299); len(data) != 1 || now != 300 {
		t.Errorf("%d entries to %d", len(data), now)
	}
	if data, now, _ := b.next(1); len(data) != 2 || now != 300 || !bytes.HasPrefix(data[0], []byte("event: reset\n")) {
		t.Errorf("%d entries to %d", len(data), now)
	}
}

func TestHistory_ManyLocks_IsBounded(t *testing.T) {
	t.Parallel()
	var h history
	for i := range maxTrails + 100 {
		h.add(fmt.Sprint(i), "x", event{What: "held"})
	}
	for i := range 100 {
		h.add("500", "x", event{What: "waiting", To: i + 1, At: time.Unix(int64(i), 0)})
	}
	if len(h.trails) != maxTrails || h.order.Len() != maxTrails {
		t.Errorf("%d locks", len(h.trails))
	}
	if _, events := h.of("99"); events != nil {
		t.Errorf("the oldest is not forgotten: %v", events)
	}
	if _, events := h.of("500"); len(events) != maxEvents || events[0].To != 100 {
		t.Errorf("%d events, the latest %+v", len(events), events[0])
	}
}

func TestHistory_LongNames_IsBounded(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var h history
	name := func(i int) string { return fmt.Sprint(i) + strings.Repeat("x", 64<<10) }
	const locks = 4 * maxNames / (64 << 10)
	for i := range locks {
		h.add(idOf(name(i)), name(i), event{What: "held"})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 2*maxNames {
		t.Errorf("the heap has grown by %d MiB", grown>>20)
	}
	if _, events := h.of(idOf(name(0))); events != nil {
		t.Errorf("the oldest is not forgotten: %v", events)
	}
	if _, events := h.of(idOf(name(locks - 1))); len(events) != 1 {
		t.Errorf("the latest is forgotten: %v", events)
	}
}
