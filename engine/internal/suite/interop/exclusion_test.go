package interop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// door is what a goroutine goes through to get in, and what it does to get out again.
type door func(ctx context.Context) (leave func(ctx context.Context) error, err error)

func (x *subject) door(ctx context.Context) (func(ctx context.Context) error, error) {
	h, err := x.lock(ctx)
	if err != nil {
		return nil, err
	}
	return h.Unlock, nil
}

// room is what a lock or permits guard: so many may be inside at a time. Two keys tell on those
// who are too many. One says how many are inside, and everybody looks when it comes in. The other
// one is a counter that is read and written back, so that it loses counts if two do at the same
// time. Both sides write both keys, while they hold what they entered with.
type room struct {
	stage    *stage
	counter  string
	capacity int
	enter    door
	slow     bool // see kind
	goesOn   bool // Go does, until Java has finished: a thread that has missed a message may need one more
}

// room is guarded by the lock.
func (x *subject) room() *room {
	return &room{x.stage, "count-of-" + x.names[0], 1, x.door, x.slow, x.writes}
}

// visits of a room.
type visits struct {
	done      int
	overlaps  int // those who were too many
	afterJava int // had Java been inside since the last one of Go's?
	most      int // inside at a time
	longest   time.Duration
}

func (v *visits) add(w visits) {
	v.done += w.done
	v.overlaps += w.overlaps
	v.afterJava += w.afterJava
	v.most = max(v.most, w.most)
	v.longest = max(v.longest, w.longest)
}

// visit goes in, adds 1 to the counter and comes out. last is what one of ours has written.
func (r *room) visit(t testing.TB, last *atomic.Int64) (v visits, err error) {
	ctx, began := testkit.Within(t, patience), time.Now()
	leave, err := r.enter(ctx)
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
	at := r.stage.sites[0]
	inside, server := at.serverOf(r.counter+":inside"), at.serverOf(r.counter)
	v.most = ask(inside, "INCR", r.counter+":inside")
	v.overlaps = max(v.most-r.capacity, 0)
	n := ask(server, "GET", r.counter)
	ask(server, "SET", r.counter, fmt.Sprint(n+1))
	if last.Swap(int64(n+1)) != int64(n) {
		v.afterJava = 1
	}
	ask(inside, "DECR", r.counter+":inside")
	v.done = 1
	return v, errors.Join(err, leave(ctx))
}

// contend has four threads of Java and four goroutines take turns in the room, each so many times.
// java asks Java to.
func (r *room) contend(t testing.TB, java func(verb string, words ...any) answer) {
	t.Helper()
	const threads = 4
	each, limit := pick(200, 2000)/(2*threads), pick(20*time.Second, 2*time.Minute)
	at := r.stage.sites[0]
	asked := java("contend", threads, each, limit.Milliseconds(), r.stage.clients[0]+"/"+r.counter, r.capacity)
	testkit.Eventually(t, "Java has begun", func() bool { return at.do(t, r.counter, "EXISTS", r.counter) == int64(1) })
	var mu sync.Mutex
	var mine visits
	var last atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for range threads {
		all.Go(func() {
			for n := 0; (n < each || r.goesOn && !asked.arrived()) && time.Since(began) < limit; n++ {
				v, err := r.visit(t, &last)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				mine.add(v)
				mu.Unlock()
				testkit.Pause(nil, time.Duration(rand.IntN(10_000_000))) // others have a chance
			}
		})
	}
	all.Wait()
	theirs, done := readVisits(t, asked), mine.done
	done += theirs.done
	if mine.overlaps != 0 || theirs.overlaps != 0 {
		t.Errorf("of %d sections Java saw %d beside too many others, Go %d", done, theirs.overlaps, mine.overlaps)
	}
	if n := at.do(t, r.counter+":inside", "GET", r.counter+":inside"); n != "0" {
		t.Errorf("in the end %v are inside", n)
	}
	if n := at.do(t, r.counter, "GET", r.counter); r.capacity == 1 && n != fmt.Sprint(done) {
		t.Errorf("%d sections and a counter of %v", done, n)
	}
	if few := pick(2, 10); min(mine.done, theirs.done) < few || !r.slow && min(mine.done, theirs.done) < threads*each {
		t.Errorf("only %d sections of Go and %d of Java in %v", mine.done, theirs.done, limit)
	}
	if most := 5 * time.Second; !r.slow && (theirs.longest > most || mine.longest > most) {
		t.Errorf("somebody slept through a release: Java waited %v, Go %v", theirs.longest, mine.longest)
	}
	if few := pick(1, 10); mine.afterJava < few || max(mine.most, theirs.most) < r.capacity {
		t.Errorf("Go followed Java %d times, want %d, and %d were inside, want %d: too little was contended",
			mine.afterJava, few, max(mine.most, theirs.most), r.capacity)
	}
	t.Logf("%d sections of Go and %d of Java in %v, Go %d times after Java; longest wait: Java %d ms, Go %d ms", mine.done, theirs.done,
		time.Since(began).Round(time.Millisecond), mine.afterJava, theirs.longest.Milliseconds(), mine.longest.Milliseconds())
	r.clear(t)
}

// readVisits reads what Java says of its own.
func readVisits(t testing.TB, a answer) (v visits) {
	t.Helper()
	if _, err := fmt.Sscan(a.want(t), &v.done, &v.overlaps, &v.longest, &v.most); err != nil {
		t.Fatal(err)
	}
	v.longest *= time.Millisecond
	return v
}

// clear deletes the keys.
func (r *room) clear(t testing.TB) {
	t.Helper()
	for _, key := range []string{r.counter, r.counter + ":inside"} {
		r.stage.sites[0].do(t, key, "DEL", key)
	}
}

// Threads of Java and goroutines take one lock: never two are inside, and no count is lost.
func TestBothExcludeEachOther(t *testing.T) {
	onEachStage(t, calm, every, func(t *testing.T, s *stage, k kind) {
		x := s.subject(t, k, "contended")
		x.room().contend(t, func(verb string, words ...any) answer { return x.ask("main", verb, words...) })
	})
}

// Threads of Java and goroutines take one permit at a time. Of one permit that is exclusion; of two, never
// three are inside. In the end all are back.
func TestBothShareThePermitsThatThereAre(t *testing.T) {
	onEachCount(t, func(t *testing.T, c counted) {
		for n := range 2 {
			name := fmt.Sprint("-of-", n+1)
			t.Run("Semaphore"+name, func(t *testing.T) { c.named("semaphore"+name).contendSemaphore(t, n+1) })
			t.Run("PermitSemaphore"+name, func(t *testing.T) { c.named("permits"+name).contendPermits(t, n+1) })
		}
	})
}

func (c counted) contendSemaphore(t *testing.T, capacity int) {
	sem := c.engines[0].Semaphore(c.name)
	if _, err := sem.TrySetPermits(testkit.Ctx(t), capacity); err != nil {
		t.Fatal(err)
	}
	c.contend(t, capacity, "semaphore", func(ctx context.Context) (func(ctx context.Context) error, error) {
		p, err := sem.Acquire(ctx, 1)
		if err != nil {
			return nil, err
		}
		return p.Release, nil
	})
	c.want(t, fmt.Sprint(capacity), "semaphore-count")
}

func (c counted) contendPermits(t *testing.T, capacity int) {
	sem := c.engines[0].PermitSemaphore(c.name)
	if err := sem.SetPermits(testkit.Ctx(t), capacity); err != nil {
		t.Fatal(err)
	}
	c.contend(t, capacity, "permits", func(ctx context.Context) (func(ctx context.Context) error, error) {
		h, err := sem.Acquire(ctx, 1)
		if err != nil {
			return nil, err
		}
		return h.Unlock, nil
	})
	c.want(t, fmt.Sprintf("%d 0 %d", capacity, capacity), "permits-count")
}

// contend has both take permits, one at a time.
func (c counted) contend(t *testing.T, capacity int, java string, enter door) {
	t.Helper()
	r := &room{stage: c.stage, counter: "count-of-" + c.name, capacity: capacity, enter: enter}
	r.contend(t, func(verb string, words ...any) answer {
		return c.jvm.ask(c.clients[0]+":main", verb, append([]any{java, c.place()}, words...)...)
	})
}
