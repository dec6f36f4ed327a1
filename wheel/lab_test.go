package wheel

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// lab makes libraries with the faults of the real one, on demand.
type lab struct {
	made       atomic.Int64
	slotTimers atomic.Int64           // After calls, those of canaries aside
	minDelay   atomic.Int64           // over those, if longer than zero
	maxDelay   atomic.Int64           // likewise
	offset     atomic.Int64           // of the libraries' wall clock: set to step it
	fault      func(n int64) labFault // of the n-th library made, from 1; nil: none
	latest     atomic.Pointer[labLibrary]
	release    chan struct{} // closed: hung libraries go on
}

type labFault int

const (
	sound  labFault = iota
	mute            // After returns, nothing ever fires
	hung            // After and Stop block until released
	eager           // fires at once
	double          // fires twice, the second time a little later
	late            // fires a second late
)

func (l *lab) new(time.Duration, int64) library {
	lib := &labLibrary{lab: l, stop: make(chan struct{}), ended: make(chan struct{})}
	if n := l.made.Add(1); l.fault != nil {
		lib.fault = l.fault(n)
	}
	l.latest.Store(lib)
	return lib
}

func (l *lab) note(d time.Duration) {
	if d == canaryPeriod {
		return // a slot's delay is never exactly that, on a clock of nanoseconds
	}
	l.slotTimers.Add(1)
	for m := l.maxDelay.Load(); int64(d) > m && !l.maxDelay.CompareAndSwap(m, int64(d)); m = l.maxDelay.Load() {
	}
	for m := l.minDelay.Load(); (m == 0 || int64(d) < m) && !l.minDelay.CompareAndSwap(m, int64(d)); m = l.minDelay.Load() {
	}
}

type labLibrary struct {
	lab   *lab
	fault labFault
	stop  chan struct{}
	ended chan struct{}
	mu    struct {
		sync.Mutex
		calls []labCall // the next comes first
	}
}

type labCall struct {
	at     int64 // wall clock
	f      func()
	again  bool
	canary bool
}

func (l *labLibrary) wall() int64 { return time.Now().UnixNano() + l.lab.offset.Load() }

func (l *labLibrary) Start() {
	go func() {
		defer close(l.ended)
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-l.stop:
				return
			case <-ticker.C:
			}
			if l.fault != mute && l.fault != hung {
				l.run()
			}
		}
	}()
}

func (l *labLibrary) run() {
	now := l.wall()
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.mu.calls) > 0 && l.mu.calls[0].at <= now {
		c := l.mu.calls[0]
		l.mu.calls = l.mu.calls[1:]
		go c.f()
		if l.fault == double && !c.again {
			l.add(labCall{at: now + int64(30*time.Millisecond), f: c.f, again: true})
		}
	}
}

// add is called with the lock.
func (l *labLibrary) add(c labCall) {
	i, _ := slices.BinarySearchFunc(l.mu.calls, c.at, func(one labCall, at int64) int { return cmp.Compare(one.at, at) })
	l.mu.calls = slices.Insert(l.mu.calls, i, c)
}

func (l *labLibrary) After(d time.Duration, f func()) {
	l.lab.note(d)
	switch l.fault {
	case hung:
		<-l.lab.release
		return
	case eager:
		go f()
		return
	}
	c := labCall{at: l.wall() + int64(d), f: f, canary: d == canaryPeriod}
	if l.fault == late {
		c.at += int64(time.Second)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(c)
}

// calls returns how many timers are set, canaries aside.
func (l *labLibrary) calls() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.mu.calls {
		if !c.canary {
			n++
		}
	}
	return n
}

func (l *labLibrary) Stop() {
	if l.fault == hung {
		<-l.lab.release
	}
	close(l.stop)
	<-l.ended
}
