package wheel

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pawl-lock/pawl/internal/clock"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		time.Sleep(200 * time.Microsecond)
	}
}

func newWheel(t *testing.T, cfg Config) *Wheel {
	t.Helper()
	w := New(cfg)
	t.Cleanup(w.Close)
	return w
}

// probe is a timer that notes its fires.
type probe struct {
	Timer
	fires atomic.Int64
	lag   atomic.Int64 // of the latest fire, in nanoseconds
	due   atomic.Int64 // set by the test
	early atomic.Int64
	fn    func(now clock.Instant)
}

func newProbe() *probe {
	p := new(probe)
	p.Init(p)
	return p
}

func (p *probe) Fire(_ *Timer, now clock.Instant) {
	lag := int64(now) - p.due.Load()
	if lag < 0 {
		p.early.Add(1)
	}
	p.lag.Store(lag)
	p.fires.Add(1)
	if p.fn != nil {
		p.fn(now)
	}
}

func (p *probe) schedule(w *Wheel, at clock.Instant) {
	p.due.Store(int64(at))
	w.Schedule(&p.Timer, at)
}

func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

func TestTimersFireNeverEarlyAndCloseToTheirDeadline(t *testing.T) {
	t.Parallel()
	rng := seeded(t)
	w := newWheel(t, Config{})
	probes := make([]*probe, 2000)
	for i := range probes {
		probes[i] = newProbe()
		probes[i].schedule(w, w.clock.Now().Add(time.Duration(rng.Int64N(int64(600*time.Millisecond)))))
	}
	for i, p := range probes {
		eventually(t, "fire", func() bool { return p.fires.Load() > 0 })
		if p.early.Load() != 0 {
			t.Fatalf("timer %d fired %v early", i, time.Duration(-p.lag.Load()))
		}
	}
	t.Logf("%+v", w.Stats())
}
