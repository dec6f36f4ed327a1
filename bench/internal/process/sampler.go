package process

import (
	"runtime"
	"sync"
	"time"
)

// Sampler watches the number of goroutines until it is stopped.
type Sampler struct {
	base int // the caller's goroutines and the sampler's own
	peak int
	quit chan struct{}
	done sync.WaitGroup
}

// sampleEvery is short enough to see a burst, and costs some 0.1 % of a CPU.
const sampleEvery = 10 * time.Millisecond

// SampleGoroutines starts a sampler; base is the number of goroutines that are not to be
// counted.
func SampleGoroutines(base int) *Sampler {
	s := &Sampler{base: base + 1, quit: make(chan struct{})}
	s.done.Go(func() {
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		for {
			s.peak = max(s.peak, runtime.NumGoroutine()-s.base)
			select {
			case <-s.quit:
				return
			case <-tick.C:
			}
		}
	})
	return s
}

// Stop ends the sampler and returns the peak.
func (s *Sampler) Stop() int {
	close(s.quit)
	s.done.Wait()
	return s.peak
}
