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
	"github.com/pawl-lock/pawl/engine/internal/kit"
)

// Readers of both are beside each other, and a writer of either waits for all of them, and is
// woken by the last; readers of both are let in when a writer leaves.
func TestReadersOfBothAreBesideEachOther(t *testing.T) {
	onEachStage(t, calm, func(k kind) bool { return k.writes }, func(t *testing.T, s *stage, k kind) {
		x := s.subject(t, k, "readers")
		java := s.subject(t, kind{name: k.name, java: "read", pawl: k.pawl}, "readers")
		l := x.stage.engines[0].RWMutex(x.names[0])
		for range pick(5, 50) {
			mine, also := kit.MustLock(t, l.Reader()), kit.MustLock(t, l.Reader())
			java.ask("reader", "lock", -1).want(t)
			w := l.Writer().LockAsync(kit.Within(t, patience))
			kit.MustUnlock(t, mine)
			if _, err := l.Writer().TryLock(kit.Within(t, patience)); !errors.Is(err, engine.ErrHeld) {
				t.Fatalf("a writer beside readers: %v", err)
			}
			kit.MustUnlock(t, also)
			began := time.Now()
			java.ask("reader", "unlock").want(t)
			h, err := w.Await(kit.Within(t, patience))
			if err != nil || time.Since(began) > 5*time.Second {
				t.Fatalf("the writer: %v after %v", err, time.Since(began))
			}
			reads := java.ask("reader", "lock", -1)
			here := l.Reader().LockAsync(kit.Within(t, patience))
			began = time.Now()
			r, err := l.Downgrade(kit.Within(t, patience), h)
			if err != nil {
				t.Fatal(err)
			}
			reads.want(t)
			next, err := here.Await(kit.Within(t, patience))
			if err != nil || time.Since(began) > 5*time.Second {
				t.Fatalf("readers after a downgrade: %v after %v", err, time.Since(began))
			}
			kit.MustUnlock(t, next)
			kit.MustUnlock(t, r)
			waits := x.ask("writer", "lock", -1)
			java.ask("reader", "unlock").want(t)
			waits.want(t)
			if _, err := l.Reader().TryLock(kit.Within(t, patience)); !errors.Is(err, engine.ErrHeld) {
				t.Fatalf("a reader beside a writer of Java: %v", err)
			}
			x.ask("writer", "unlock").want(t)
		}
	})
}

// Writers and readers of both take turns at one counter: what the writers add is all there, and no
// reader sees it change, or anybody who writes.
func TestNoReaderOfBothIsBesideAWriter(t *testing.T) {
	onEachStage(t, calm, func(k kind) bool { return k.writes }, func(t *testing.T, s *stage, k kind) {
		const threads = 2
		each, limit := pick(200, 2000)/(4*threads), pick(30*time.Second, 2*time.Minute)
		x := s.subject(t, k, "mixed")
		reads := s.subject(t, kind{name: k.name, java: "read", pawl: k.pawl}, "mixed")
		l := x.stage.engines[0].RWMutex(x.names[0])
		counter := "count-of-" + x.names[0]
		at := s.clients[0] + "/" + counter
		writers := x.ask("writers", "contend", threads, each, limit.Milliseconds(), at)
		readers := reads.ask("readers", "watch", threads, each, limit.Milliseconds(), at)
		kit.Eventually(t, "Java has begun", func() bool { return s.sites[0].do(t, counter, "EXISTS", counter) == int64(1) })
		var last atomic.Int64
		var wrote, looked, changes atomic.Int64
		var all sync.WaitGroup
		began := time.Now()
		for range threads {
			all.Go(func() {
				for n := 0; n < each && time.Since(began) < limit; n++ {
					v, err := x.visit(t, counter, &last)
					if err != nil {
						t.Error(err)
						return
					}
					wrote.Add(int64(v.done))
					changes.Add(int64(v.overlaps))
					kit.Pause(nil, time.Duration(rand.IntN(10_000_000)))
				}
			})
			all.Go(func() {
				for n := 0; n < each && time.Since(began) < limit; n++ {
					h, err := l.Reader().Lock(kit.Within(t, patience))
					if err != nil {
						t.Error(err)
						return
					}
					was := s.sites[0].do(t, counter, "GET", counter)
					kit.Pause(nil, time.Duration(rand.IntN(2_000_000)))
					inside := s.sites[0].do(t, counter+":inside", "GET", counter+":inside")
					if is := s.sites[0].do(t, counter, "GET", counter); is != was || inside != nil && inside != "0" {
						changes.Add(1)
					}
					kit.MustUnlock(t, h)
					looked.Add(1)
					kit.Pause(nil, time.Duration(rand.IntN(10_000_000)))
				}
			})
		}
		all.Wait()
		for what, answer := range map[string]answer{"writers": writers, "readers": readers} {
			var done, overlaps, longest int64
			if _, err := fmt.Sscan(answer.want(t), &done, &overlaps, &longest); err != nil {
				t.Fatal(err)
			}
			if overlaps != 0 || done < threads*int64(each) {
				t.Errorf("%s of Java: %d sections, and others inside %d times", what, done, overlaps)
			}
			if what == "writers" {
				wrote.Add(done)
			}
		}
		if n := s.sites[0].do(t, counter, "GET", counter); n != fmt.Sprint(wrote.Load()) || changes.Load() != 0 || looked.Load() < threads*int64(each) {
			t.Errorf("%d sections and a counter of %v; Go looked %d times, and saw others inside %d times", wrote.Load(), n, looked.Load(), changes.Load())
		}
		t.Logf("%d sections of writers in %v", wrote.Load(), time.Since(began).Round(time.Millisecond))
		for _, key := range []string{counter, counter + ":inside"} {
			s.sites[0].do(t, key, "DEL", key)
		}
	})
}
