package recovery

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/env"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/wheel"
)

// lab surrounds a Recovery with a world in which nothing happens by itself. It is the Port,
// the Client and the Timers. The route of a name is its first letter.
type lab struct {
	t       *testing.T
	v       *Recovery
	clock   *clock.Fake
	lanes   map[uint64]*labLane // by route
	timers  map[*wheel.Timer]clock.Instant
	closing bool

	went map[string]outcome // by name
	gone []string           // names that were gone on with
	pace *lock.Throttle     // of the latest of them

	refuse error // the client completes what is submitted with it
	out    []*resentRelease
}

// outcome is what becomes of a name that was stalled.
type outcome uint8

const (
	sends outcome = iota
	nothingToSend
	stalledAgain
)

// labLane is a lane to a server.
type labLane struct {
	up     bool
	server resp.ServerID
}

func (l *labLane) Up() bool { return l.up }

func newLab(t *testing.T, keep time.Duration) *lab {
	l := &lab{
		t: t, clock: clock.NewFake(), timers: make(map[*wheel.Timer]clock.Instant), went: make(map[string]outcome),
		lanes: map[uint64]*labLane{'a': {true, 1}, 'b': {true, 2}},
	}
	reverse := func(n int, swap func(i, j int)) {
		for i := range n / 2 {
			swap(i, n-1-i)
		}
	}
	l.v = New(Config{Clock: l.clock, Wheel: l, Client: l, Shuffle: reverse, Engine: l, Keep: keep})
	t.Cleanup(func() {
		if !l.v.mu.TryLock() || !l.v.released.mu.TryLock() {
			t.Error("a lock is held")
		}
	})
	return l
}

func (l *lab) Closing() bool                             { l.unlocked(); return l.closing }
func (l *lab) Route(name string) uint64                  { return uint64(name[0]) }
func (l *lab) LaneOf(route uint64) env.Lane              { return l.lanes[route] }
func (l *lab) ServerOf(route uint64) resp.ServerID       { return l.lanes[route].server }
func (l *lab) Cancel(t *wheel.Timer) bool                { delete(l.timers, t); return true }
func (l *lab) Schedule(t *wheel.Timer, at clock.Instant) { l.timers[t] = at }

// labName is a name that stalls.
type labName struct {
	l       *lab
	Name    string
	dropped bool
}

func (r *labName) Unwanted() *bool { return &r.dropped }

func (r *labName) Status() (stalled, urgent bool, route uint64) {
	r.l.unlocked()
	return r.l.went[r.Name] == stalledAgain, strings.HasSuffix(r.Name, "!"), r.l.Route(r.Name)
}

func (r *labName) Advance(by *lock.Throttle) (sends bool) {
	l := r.l
	l.unlocked()
	l.gone, l.pace = append(l.gone, r.Name), by
	if l.went[r.Name] == stalledAgain {
		l.v.Add(r)
	}
	return l.went[r.Name] != nothingToSend
}

func (l *lab) Submit(_ uint64, r resp.Request) {
	l.unlocked()
	if l.refuse != nil {
		r.Complete(resp.Reply{Err: l.refuse})
		return
	}
	l.out = append(l.out, r.(*resentRelease))
}

func (l *lab) Result(err error) lock.Result {
	if v, ok := err.(verdict); ok {
		return lock.Result(v)
	}
	return lock.Replied
}

func (l *lab) AppendRelease(dst []byte, _ resp.ScriptForm, r *Release, rest time.Duration) []byte {
	return append(append(append(dst, r.Name...), ' '), rest.String()...)
}

// unlocked fails the test if a lock is held where none may be.
func (l *lab) unlocked() {
	l.t.Helper()
	if !l.v.mu.TryLock() {
		l.t.Fatal("mu is held")
	}
	l.v.mu.Unlock()
	if !l.v.released.mu.TryLock() {
		l.t.Fatal("released.mu is held")
	}
	l.v.released.mu.Unlock()
}

// verdict is an error that has one.
type verdict lock.Result

func (verdict) Error() string { return "a verdict" }

// add has names stall; urgent ones end with "!".
func (l *lab) add(names ...string) (list []*labName) {
	for _, name := range names {
		r := &labName{l: l, Name: name}
		l.v.Add(r)
		list = append(list, r)
	}
	return list
}

// took returns the names that were gone on with since.
func (l *lab) took() string {
	names := strings.Join(l.gone, " ")
	l.gone = nil
	return names
}

// sent returns the names of past releases that were sent since.
func (l *lab) sent() (names string) {
	for _, a := range l.out {
		names += a.Name + " "
	}
	l.out = nil
	return strings.TrimSpace(names)
}

// advance moves the clock, and fires what is due.
func (l *lab) advance(d time.Duration) {
	end := l.clock.Now().Add(d)
	for {
		var next *wheel.Timer
		for _, t := range slices.Collect(maps.Keys(l.timers)) {
			if l.timers[t] <= end && (next == nil || l.timers[t] < l.timers[next]) {
				next = t
			}
		}
		if next == nil {
			break
		}
		at := l.timers[next]
		delete(l.timers, next)
		l.clock.Advance(max(0, at.Sub(l.clock.Now())))
		next.Fire(l.clock.Now())
	}
	l.clock.Advance(end.Sub(l.clock.Now()))
}

// wantRest fails the test unless nothing is to be done, and nothing armed.
func (l *lab) wantRest() {
	l.t.Helper()
	if n := len(l.v.mu.lanes); n != 0 || len(l.timers) != 0 {
		l.t.Errorf("%d lanes have something to do, %d timers are armed", n, len(l.timers))
	}
}
