package interop

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/kit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// Threads of Java and goroutines add to one counter under the lock: they read it and write it
// back, so that it loses counts if two do at the same time. A second key says how many are
// inside.
func TestBothExcludeEachOther(t *testing.T) {
	onEachStage(t, calm, every, func(t *testing.T, s *stage, k kind) {
		const threads = 4
		each, limit := pick(200, 2000)/(2*threads), pick(20*time.Second, 2*time.Minute)
		x := s.subject(t, k, "contended")
		counter := "count-of-" + x.names[0]
		java := x.ask("main", "contend", threads, each, limit.Milliseconds(), s.clients[0]+"/"+counter)
		kit.Eventually(t, "Java has begun", func() bool { return s.sites[0].do(t, counter, "EXISTS", counter) == int64(1) })
		var mu sync.Mutex
		var mine visits
		var last atomic.Int64 // what one of ours wrote
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
					mu.Lock()
					mine.add(v)
					mu.Unlock()
					kit.Pause(nil, time.Duration(rand.IntN(10_000_000))) // others have a chance
				}
			})
		}
		all.Wait()
		var theirs visits
		var longest int
		if _, err := fmt.Sscan(java.want(t), &theirs.done, &theirs.overlaps, &longest); err != nil {
			t.Fatal(err)
		}
		done := mine.done + theirs.done
		if n := s.sites[0].do(t, counter, "GET", counter); n != fmt.Sprint(done) || mine.overlaps != 0 || theirs.overlaps != 0 {
			t.Errorf("%d sections and a counter of %v; overlaps: Java saw %d, Go %d", done, n, theirs.overlaps, mine.overlaps)
		}
		if done < 2*threads*each && !k.slow {
			t.Errorf("only %d sections in %v", done, limit)
		}
		if most := 5 * time.Second; !k.slow && (longest > int(most.Milliseconds()) || mine.longest > most) {
			t.Errorf("somebody slept through a release: Java waited %d ms, Go %v", longest, mine.longest)
		}
		if few := pick(1, 10); mine.afterJava < few {
			t.Errorf("Go followed Java %d times, want %d: too little was contended", mine.afterJava, few)
		}
		t.Logf("%d sections in %v, Go %d times after Java; longest wait: Java %d ms, Go %d ms", done,
			time.Since(began).Round(time.Millisecond), mine.afterJava, longest, mine.longest.Milliseconds())
		for _, key := range []string{counter, counter + ":inside"} {
			s.sites[0].do(t, key, "DEL", key)
		}
	})
}

// visits of the critical section.
type visits struct {
	done      int
	overlaps  int // with others
	afterJava int // had Java been inside since the last one of Go's?
	longest   time.Duration
}

func (v *visits) add(w visits) {
	v.done += w.done
	v.overlaps += w.overlaps
	v.afterJava += w.afterJava
	v.longest = max(v.longest, w.longest)
}

// visit adds 1 to the counter under the lock.
func (x *subject) visit(t testing.TB, counter string, last *atomic.Int64) (v visits, err error) {
	ctx, began := kit.Within(t, patience), time.Now()
	h, err := x.lock(ctx)
	if err != nil {
		return v, err
	}
	v.longest = time.Since(began)
	ask := func(server *redistest.Server, words ...string) (n int) {
		if err != nil {
			return 0
		}
		var answer any
		answer, err = server.Process.Do(words...)
		n, _ = strconv.Atoi(fmt.Sprint(answer)) // a counter that is not there yet is 0
		return n
	}
	at := x.stage.sites[0]
	inside, server := at.serverOf(counter+":inside"), at.serverOf(counter)
	v.overlaps = ask(inside, "INCR", counter+":inside") - 1
	n := ask(server, "GET", counter)
	ask(server, "SET", counter, fmt.Sprint(n+1))
	if last.Swap(int64(n+1)) != int64(n) {
		v.afterJava = 1
	}
	ask(inside, "DECR", counter+":inside")
	v.done = 1
	return v, errors.Join(err, h.Unlock(ctx))
}
