package interop

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
)

// Threads of Java and goroutines that wait in one queue get the lock in the order in which they
// came.
func TestBothAreServedInTheOrderOfArrival(t *testing.T) {
	onEachStage(t, calm, func(k kind) bool { return k.queues }, func(t *testing.T, s *stage, k kind) {
		for round := range pick(5, 50) {
			x := s.subject(t, k, fmt.Sprint("order ", round))
			queue := "redisson_lock_queue:{" + x.names[0] + "}"
			first, err := x.lock(testkit.Within(t, patience))
			if err != nil {
				t.Fatal(err)
			}
			const n = 12
			var mu sync.Mutex
			var order []int
			var all sync.WaitGroup
			for i := range n {
				all.Go(func() {
					served := func() {
						mu.Lock()
						defer mu.Unlock()
						order = append(order, i)
					}
					if i%2 == 0 {
						thread := fmt.Sprint("waiter", i)
						x.ask(thread, "lock", -1).want(t)
						served()
						x.ask(thread, "unlock").want(t)
						return
					}
					h, err := x.lock(testkit.Within(t, patience))
					if err != nil {
						t.Error(err)
						return
					}
					served()
					if err := h.Unlock(testkit.Within(t, patience)); err != nil {
						t.Error(err)
					}
				})
				testkit.Eventually(t, "it is queued", func() bool { return s.sites[0].do(t, queue, "LLEN", queue) == int64(i+1) })
			}
			if err := first.Unlock(testkit.Within(t, patience)); err != nil {
				t.Fatal(err)
			}
			all.Wait()
			if len(order) != n || !slices.IsSorted(order) {
				t.Errorf("they were served in the order %v", order)
			}
		}
	})
}

// A thread that waits for a minute has a place for as long as the lease lasts, and 60 ms more: Redisson
// takes the seconds for milliseconds. The lock is held for longer; so its place is gone at the
// release, and it is told.
func TestAThreadWhosePlaceIsOverDoesNotSleepThroughARelease(t *testing.T) {
	how := calm
	how.lease = 6 * time.Second
	onEachStage(t, how, func(k kind) bool { return k.queues }, func(t *testing.T, s *stage, k kind) {
		x := s.subject(t, k, "room")
		timeouts := "redisson_lock_timeout:{" + x.names[0] + "}"
		h, err := x.lock(testkit.Within(t, patience))
		if err != nil {
			t.Fatal(err)
		}
		got := x.ask("waiter", "tryseconds", 60)
		testkit.Eventually(t, "its place is over", func() bool {
			last, _ := s.sites[0].do(t, timeouts, "ZRANGE", timeouts, "0", "0", "WITHSCORES").([]any)
			if len(last) == 0 {
				return false
			}
			until, err := strconv.ParseFloat(last[1].(string), 64)
			return err == nil && float64(time.Now().UnixMilli()) > until+50
		})
		if err := h.Unlock(testkit.Within(t, patience)); err != nil {
			t.Fatal(err)
		}
		released := cputime.Now()
		if is := got.want(t); is != "true" {
			t.Errorf("it got %q", is)
		}
		if d := released.Elapsed(); d > 3*time.Second { // it would sleep for 4 s at least
			t.Errorf("it got the lock %v after the release", d)
		}
		x.ask("waiter", "unlock").want(t)
	})
}

// A thread that lives waits behind two that have died, and a goroutine behind it. Told that it is not its
// turn, the thread would ask again without a pause, and shorten nobody's time: the goroutine is told.
func TestDeadThreadsBeforeALivingOne(t *testing.T) {
	t.Parallel()
	onEachGround(t, func(t *testing.T, g ground, own []kind) {
		if !slices.ContainsFunc(own, func(k kind) bool { return k.queues }) {
			return
		}
		s := newStage(t, g, calm)
		dies := startJVM(t)
		theirs := dies.connect(t, s.sites[0], calm)
		const name, queue = "x", "redisson_lock_queue:{x}"
		m := s.engines[0].FairMutex(name)
		h, err := m.Lock(testkit.Within(t, patience))
		if err != nil {
			t.Fatal(err)
		}
		waits := func(n int64) {
			testkit.Eventually(t, "it is queued", func() bool { return s.sites[0].do(t, queue, "LLEN", queue) == n })
		}
		for i := range 2 {
			dies.ask(fmt.Sprint("dies", i), "lock", "fair", theirs+"/"+name, -1)
			waits(int64(i + 1))
		}
		lives := s.jvm.ask(s.clients[0]+":lives", "lock", "fair", s.clients[0]+"/"+name, -1)
		waits(3)
		last := m.LockAsync(testkit.Within(t, patience))
		waits(4)
		dies.kill(t)
		testkit.Eventually(t, "nobody hears the dead", func() bool {
			return s.listeners(s.sites[0].do(t, queue, "LINDEX", queue, "0").(string)) == 0
		})
		before := s.scripts()
		released := cputime.Now()
		if err := h.Unlock(testkit.Within(t, patience)); err != nil {
			t.Fatal(err)
		}
		lives.want(t)
		if d := released.Elapsed(); d > 9*time.Second { // three seconds for each of the dead
			t.Errorf("the thread got it after %v", d)
		}
		s.jvm.ask(s.clients[0]+":lives", "unlock", "fair", s.clients[0]+"/"+name).want(t)
		if h, err = last.Await(testkit.Within(t, patience)); err != nil {
			t.Fatal(err)
		}
		if err := h.Unlock(testkit.Within(t, patience)); err != nil {
			t.Error(err)
		}
		if n := s.scripts() - before; n > 1000 {
			t.Errorf("%d scripts were called", n)
		}
	})
}
