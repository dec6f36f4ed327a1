//go:build !race

package wheel

import (
	"testing"
	"time"
	"unsafe"
)

func TestScheduleAndCancelDoNotAllocate(t *testing.T) {
	w := newWheel(t, Config{})
	p := newProbe()
	now := w.clock.Now()
	for _, d := range []time.Duration{5 * time.Millisecond, 30 * time.Second, time.Hour} {
		w.Schedule(&p.Timer, now.Add(d)) // makes the slot
		if n := testing.AllocsPerRun(1000, func() {
			w.Schedule(&p.Timer, now.Add(d))
			w.Schedule(&p.Timer, now.Add(d+time.Microsecond))
			w.Cancel(&p.Timer)
		}); n != 0 {
			t.Errorf("%v ahead: %v allocations", d, n)
		}
	}
}

func TestFireDoesNotAllocate(t *testing.T) {
	w := newWheel(t, Config{Workers: 1})
	p := newProbe()
	done := int64(0)
	if n := testing.AllocsPerRun(2000, func() {
		w.Schedule(&p.Timer, 0)
		for done++; p.fires.Load() < done; {
			time.Sleep(time.Microsecond) // a poll
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestTimerIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Timer{}); unsafe.Sizeof(uintptr(0)) == 8 && size > 40 {
		t.Errorf("%d bytes", size)
	}
}
