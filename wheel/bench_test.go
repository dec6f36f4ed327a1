package wheel

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

func BenchmarkSchedule(b *testing.B) {
	for name, d := range map[string]time.Duration{"near": 50 * time.Millisecond, "slot": 10 * time.Second, "far": time.Hour} {
		b.Run(name, func(b *testing.B) {
			w := New(Config{})
			defer w.Close()
			timers := newProbes(1024)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				w.Schedule(&timers[i%len(timers)].Timer, w.clock.Stamp().Add(d))
				i++
			}
		})
	}
}

func BenchmarkScheduleCancelParallel(b *testing.B) {
	w := New(Config{})
	defer w.Close()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		p := newProbe()
		for pb.Next() {
			w.Schedule(&p.Timer, w.clock.Stamp().Add(10*time.Second))
			w.Cancel(&p.Timer)
		}
	})
}

type counted struct {
	c chan struct{}
	n int
}

func (c *counted) Fire(*Timer, clock.Instant) {
	if c.n--; c.n == 0 {
		close(c.c)
	}
}

// BenchmarkFire is the cost of one timer from due to fired, many due together.
func BenchmarkFire(b *testing.B) {
	w := New(Config{Workers: 1})
	defer w.Close()
	task := &counted{make(chan struct{}), b.N}
	timers := make([]Timer, b.N)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range timers {
		timers[i].Init(task)
		w.Schedule(&timers[i], 0)
	}
	<-task.c
}
