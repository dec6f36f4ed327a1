package quorum

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// world is clients that want one lock, and its servers, in virtual time. A seed decides
// everything.
type world struct {
	t        testing.TB
	seed     uint64
	r        *rand.Rand
	now      clock.Instant
	lease    time.Duration
	events   events
	seq      int
	servers  []*server
	clients  []*client
	quiet    bool // no more faults
	short    bool // no section is longer than 20 ms
	stopping bool // nobody begins again
	story    []string
}

// event is something that happens later. Of those at one time the first comes first.
type event struct {
	at  clock.Instant
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

func (w *world) in(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.events, event{w.now.Add(d), w.seq, do})
}

// run goes on for d, or until all is done, and looks at everybody after each event.
func (w *world) run(d time.Duration, done func() bool) {
	w.t.Helper()
	for end := w.now.Add(d); len(w.events) > 0 && w.events[0].at <= end && !done(); {
		next := heap.Pop(&w.events).(event)
		w.now = next.at
		next.do()
		w.exclusion()
	}
}

func (w *world) says(format string, of ...any) {
	w.story = append(w.story, fmt.Sprintf("%12v ", w.now.Sub(0))+fmt.Sprintf(format, of...))
	if most := 400; len(w.story) > most {
		w.story = slices.Delete(w.story, 0, len(w.story)-most/2)
	}
}

func (w *world) fail(format string, of ...any) {
	w.t.Helper()
	for _, line := range w.story[max(0, len(w.story)-60):] {
		w.t.Log(line)
	}
	w.t.Fatalf("seed %d, at %v: %s", w.seed, w.now.Sub(0), fmt.Sprintf(format, of...))
}

// between is a random time from a to b.
func (w *world) between(a, b time.Duration) time.Duration {
	return a + time.Duration(w.r.Int64N(int64(b-a)+1))
}

// exclusion: at no time two believe that they have the lock.
func (w *world) exclusion() {
	w.t.Helper()
	var who []int
	for _, c := range w.clients {
		if c.m != nil && c.m.Stage == Holding {
			if certain, _ := c.m.Check(); certain {
				who = append(who, c.id)
			}
		}
	}
	if len(who) > 1 {
		w.fail("clients %v hold it", who)
	}
}

// server is one of the servers: its lock's owner, and how its network is.
type server struct {
	*world
	id       int
	far      time.Duration // a way there, at least
	owner    *grant
	expires  clock.Instant
	down     bool          // connections are refused
	hangs    clock.Instant // until then: commands wait, and are executed after it
	sleepers []*attempt
	releases []*grant              // whose releases are not answered
	behind   []*attempt            // that wait for those of their processes
	trips    map[int]time.Duration // the latest of each process
}

// releasing reports whether a process has a release of this lock out here.
func (s *server) releasing(process int) bool {
	return slices.ContainsFunc(s.releases, func(g *grant) bool { return g.c.process == process })
}

// released is called with the answer of a release. What is behind it begins.
func (s *server) released(g *grant) {
	s.releases = slices.DeleteFunc(s.releases, func(one *grant) bool { return one == g })
	behind := s.behind
	s.behind = nil
	for _, a := range behind {
		a.begin()
	}
}

// way is how long a command is on its way, or an answer.
func (s *server) way() time.Duration { return s.between(s.far, 2*s.far) }

// call executes a command, and then calls back: with false if the server is down.
func (s *server) call(command, back func(ok bool)) {
	d := s.way()
	if at := s.now.Add(d); s.hangs > at {
		d = s.hangs.Sub(s.now) + s.way()
	}
	s.in(d, func() {
		ok := !s.down
		if ok && s.owner != nil && s.now >= s.expires {
			s.free()
		}
		command(ok)
		s.in(s.way(), func() { back(ok) })
	})
}

// free wakes those that wait for the lock: they ask again.
func (s *server) free() {
	s.owner = nil
	for _, a := range s.sleepers {
		s.in(s.way(), a.wake)
	}
}
