package clock

import (
	"sync"
	"sync/atomic"
	"time"
)

// Fake is a Clock that moves only when told to. Its zero value starts at
// Instant 0 and the Unix epoch; use NewFake for one that starts somewhere sane.
type Fake struct {
	now    atomic.Int64
	offset atomic.Int64 // wall clock (Unix nanoseconds) - now

	mu struct {
		sync.Mutex
		hooks map[*func()]struct{}
	}
}

// NewFake returns a Fake at one hour, its wall clock at 2026-01-01.
func NewFake() *Fake {
	f := new(Fake)
	f.now.Store(int64(origin))
	f.offset.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano() - int64(origin))
	return f
}

// Now returns the current fake instant.
func (f *Fake) Now() Instant { return Instant(f.now.Load()) }

// Stamp returns the same as Now.
func (f *Fake) Stamp() Instant { return f.Now() }

// Wall returns the current fake wall time.
func (f *Fake) Wall() time.Time { return time.Unix(0, f.now.Load()+f.offset.Load()) }

// Advance moves both clocks by d at once, and then calls what OnMove was given.
func (f *Fake) Advance(d time.Duration) {
	f.now.Add(int64(d))
	f.moved()
}

// Step moves the wall clock alone, as an administrator or NTP does.
func (f *Fake) Step(d time.Duration) {
	f.offset.Add(int64(d))
	f.moved()
}

// OnMove has fn called after each Advance or Step, in the goroutine that called
// it, until cancel. A wheel on a Fake needs no real time to pass that way.
func (f *Fake) OnMove(fn func()) (cancel func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.hooks == nil {
		f.mu.hooks = make(map[*func()]struct{})
	}
	f.mu.hooks[&fn] = struct{}{}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.mu.hooks, &fn)
	}
}

func (f *Fake) moved() {
	f.mu.Lock()
	hooks := make([]func(), 0, len(f.mu.hooks))
	for fn := range f.mu.hooks {
		hooks = append(hooks, *fn)
	}
	f.mu.Unlock()
	for _, fn := range hooks {
		fn()
	}
}
