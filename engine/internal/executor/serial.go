package executor

import (
	"sync"
	"sync/atomic"
)

// maxCalls bounds the calls that wait in a Serial.
const maxCalls = 1 << 16

// Serial makes calls of user code one at a time, in order, on one goroutine of an Executor, which exists
// while there is something to call. A call that finds 65,536 others waiting is dropped and counted.
//
// mu may be taken under any lock, and no lock is taken under it.
type Serial struct {
	exec    *Executor
	dropped atomic.Uint64

	mu      sync.Mutex
	queue   []func()
	running bool
	closed  bool
}

// Init sets the executor that runs the goroutine.
func (s *Serial) Init(x *Executor) { s.exec = x }

// Push has call called after those before it. It never blocks.
func (s *Serial) Push(call func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.queue) >= maxCalls {
		s.dropped.Add(1)
		return
	}
	s.queue = append(s.queue, call)
	if !s.running {
		s.running = true
		s.exec.Spawn(s.run)
	}
}

// run makes the calls. If one ends its goroutine (runtime.Goexit: t.Fatal does that),
// another goroutine goes on after it.
func (s *Serial) run() {
	var batch []func()
	through := false
	defer func() {
		if !through {
			s.mu.Lock()
			s.queue = append(batch, s.queue...)
			s.mu.Unlock()
			s.exec.Spawn(s.run)
		}
	}()
	for {
		s.mu.Lock()
		batch = s.queue
		s.queue = nil
		s.running = len(batch) > 0
		s.mu.Unlock()
		if len(batch) == 0 {
			through = true
			return
		}
		for len(batch) > 0 {
			call := batch[0]
			batch = batch[1:]
			call()
		}
	}
}

// Dropped is how many calls were not made.
func (s *Serial) Dropped() uint64 { return s.dropped.Load() }

// Close refuses further calls; those that wait are made.
func (s *Serial) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
}
