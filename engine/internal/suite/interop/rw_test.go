package interop

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

func writes(k kind) bool { return k.writes }

// half is the lock and the readers' half of it, as both see them.
func (s *stage) half(t testing.TB, k kind, about string) (x, readers *subject, l engine.RWMutex) {
	t.Helper()
	x = s.subject(t, k, about)
	y := *x
	y.kind, y.locker = reading, reading.pawl(s.engines, x.names)
	return x, &y, s.engines[0].RWMutex(x.names[0])
}

// Readers of both are beside each other, and a writer of either waits for all of them, and is
// woken by the last; readers of both are let in when a writer leaves.
func TestReadersOfBothAreBesideEachOther(t *testing.T) {
	onEachStage(t, calm, writes, func(t *testing.T, s *stage, k kind) {
		for n := range pick(5, 50) { // with new names, which nobody listens to yet
			x, java, l := s.half(t, k, fmt.Sprint("readers ", n))
			mine, also := testkit.MustLock(t, l.Reader()), testkit.MustLock(t, l.Reader())
			again := testkit.MustReenter(t, l.Reader(), also) // for the server they are one, and once
			owner := s.jvm.ask(java.thread("reader"), "owner", s.clients[0]).want(t)
			java.ask("reader", "lock", -1).want(t)
			java.ask("reader", "lock", -1).want(t)
			x.wantFields(t, map[string]string{"mode": "read", mine.Owner(): "1", owner: "2"})
			java.wantJava(t, "reader", true, true, 2)
			testkit.MustUnlock(t, again)
			java.ask("reader", "unlock").want(t)
			x.wantFields(t, map[string]string{"mode": "read", mine.Owner(): "1", owner: "1"})
			var w *engine.Future[*engine.Hold]
			s.asleep(t, s.engines[0], x.about, func() { w = l.Writer().LockAsync(testkit.Within(t, patience)) })
			testkit.MustUnlock(t, mine)
			if _, err := l.Writer().TryLock(testkit.Within(t, patience)); !errors.Is(err, engine.ErrHeld) {
				t.Fatalf("a writer beside readers: %v", err)
			}
			testkit.MustUnlock(t, also)
			began := time.Now()
			java.ask("reader", "unlock").want(t)
			h, err := w.Await(testkit.Within(t, patience))
			if err != nil {
				t.Fatal(err)
			}
			soon(t, "the writer", began)
			r, err := l.Downgrade(testkit.Within(t, patience), h)
			if err != nil {
				t.Fatal(err)
			}
			java.ask("reader", "lock", -1).want(t)
			testkit.MustUnlock(t, r)
			waits := x.whileItWaits(t, func() answer { return x.ask("writer", "lock", -1) })
			began = time.Now()
			java.ask("reader", "unlock").want(t)
			waits.want(t)
			soon(t, "the writer of Java", began)
			if _, err := l.Reader().TryLock(testkit.Within(t, patience)); !errors.Is(err, engine.ErrHeld) {
				t.Fatalf("a reader beside a writer of Java: %v", err)
			}
			x.ask("writer", "unlock").want(t)
		}
	})
}

// Four threads of Java and four goroutines of another engine sleep until they may read. When the writer leaves, whoever
// it is, all of them get in, and none has to leave for that: one message wakes them all.
func TestAWriterThatLeavesWakesAllReadersOfBoth(t *testing.T) {
	onEachStage(t, calm, writes, func(t *testing.T, s *stage, k kind) {
		const readers = 4
		other := s.engine(t, s.sites[0])
		for n := range pick(3, 30) {
			for _, way := range []string{"Pawl unlocks", "Pawl downgrades", "Java unlocks"} {
				x, java, l := s.half(t, k, fmt.Sprint(way, " ", n))
				var h *engine.Hold
				if way == "Java unlocks" {
					x.ask("writer", "lock", -1).want(t)
				} else {
					h = testkit.MustLock(t, l.Writer())
				}
				var here []*engine.Future[*engine.Hold]
				s.asleep(t, other, x.about, func() {
					for range readers {
						here = append(here, other.RWMutex(l.Writer().Name()).Reader().LockAsync(testkit.Within(t, patience)))
					}
				})
				var there []answer
				for i := range readers {
					there = append(there, java.ask(fmt.Sprint("reader", i), "lock", -1))
				}
				s.jvm.asleep(t, there...)
				began := time.Now()
				switch way {
				case "Pawl unlocks":
					testkit.MustUnlock(t, h)
				case "Pawl downgrades":
					var err error
					if h, err = l.Downgrade(testkit.Within(t, patience), h); err != nil {
						t.Fatal(err)
					}
				case "Java unlocks":
					x.ask("writer", "unlock").want(t)
				}
				for _, a := range there {
					a.want(t)
				}
				var all []*engine.Hold
				for _, f := range here {
					r, err := f.Await(testkit.Within(t, patience))
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, r)
				}
				soon(t, way+": the readers", began)
				if way == "Pawl downgrades" {
					all = append(all, h)
				}
				for _, r := range all {
					testkit.MustUnlock(t, r)
				}
				for i := range readers {
					java.ask(fmt.Sprint("reader", i), "unlock").want(t)
				}
			}
		}
	})
}

// Writers and readers of both take turns at one counter: what the writers add is all there, and no
// reader sees it change, or anybody who writes.
func TestNoReaderOfBothIsBesideAWriter(t *testing.T) {
	onEachStage(t, calm, writes, func(t *testing.T, s *stage, k kind) {
		const threads = 2
		each, limit := pick(200, 2000)/(4*threads), pick(30*time.Second, 2*time.Minute)
		x, reads, l := s.half(t, k, "mixed")
		room := x.room()
		counter, at := room.counter, s.clients[0]+"/"+room.counter
		writers := x.ask("writers", "contend", threads, each, limit.Milliseconds(), at, room.capacity)
		readers := reads.ask("readers", "watch", threads, each, limit.Milliseconds(), at)
		testkit.Eventually(t, "Java has begun", func() bool { return s.sites[0].do(t, counter, "EXISTS", counter) == int64(1) })
		var last, wrote, looked, changes, longest atomic.Int64
		waited := func(d time.Duration) {
			for was := longest.Load(); int64(d) > was && !longest.CompareAndSwap(was, int64(d)); was = longest.Load() {
			}
		}
		var all sync.WaitGroup
		began := time.Now()
		goesOn := func(n int) bool { // until Java has finished: it may need a last message of ours
			return (n < each || !writers.arrived() || !readers.arrived()) && time.Since(began) < limit
		}
		for range threads {
			all.Go(func() {
				for n := 0; goesOn(n); n++ {
					v, err := room.visit(t, &last)
					if err != nil {
						t.Error(err)
						return
					}
					wrote.Add(int64(v.done))
					changes.Add(int64(v.overlaps))
					waited(v.longest)
					testkit.Pause(nil, time.Duration(rand.IntN(10_000_000)))
				}
			})
			all.Go(func() {
				for n := 0; goesOn(n); n++ {
					asked := time.Now()
					h, err := l.Reader().Lock(testkit.Within(t, patience))
					if err != nil {
						t.Error(err)
						return
					}
					waited(time.Since(asked))
					was := s.sites[0].do(t, counter, "GET", counter)
					testkit.Pause(nil, time.Duration(rand.IntN(2_000_000)))
					inside := s.sites[0].do(t, counter+":inside", "GET", counter+":inside")
					if is := s.sites[0].do(t, counter, "GET", counter); is != was || inside != nil && inside != "0" {
						changes.Add(1)
					}
					testkit.MustUnlock(t, h)
					looked.Add(1)
					testkit.Pause(nil, time.Duration(rand.IntN(10_000_000)))
				}
			})
		}
		all.Wait()
		const most = 5 * time.Second
		for what, answer := range map[string]answer{"writers": writers, "readers": readers} {
			v := readVisits(t, answer)
			if v.overlaps != 0 || v.done < threads*each {
				t.Errorf("%s of Java: %d sections, and others inside %d times", what, v.done, v.overlaps)
			}
			if v.longest > most {
				t.Errorf("%s of Java: one slept through a release, for %v", what, v.longest)
			}
			if what == "writers" {
				wrote.Add(int64(v.done))
			}
			t.Logf("%s of Java waited %v at most", what, v.longest)
		}
		if d := time.Duration(longest.Load()); d > most {
			t.Errorf("Go slept through a release, for %v", d)
		}
		if n := s.sites[0].do(t, counter, "GET", counter); n != fmt.Sprint(wrote.Load()) || changes.Load() != 0 || looked.Load() < threads*int64(each) {
			t.Errorf("%d sections and a counter of %v; Go looked %d times, and saw others inside %d times", wrote.Load(), n, looked.Load(), changes.Load())
		}
		t.Logf("%d sections of writers in %v", wrote.Load(), time.Since(began).Round(time.Millisecond))
		room.clear(t)
	})
}
