package redisson

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// The tests of RedissonSemaphoreTest and RedissonCountDownLatchTest, as they read for Pawl. Each
// names the original. Where another client is needed it is Redisson's.

func release(t testing.TB, p *engine.Permits) {
	t.Helper()
	if err := p.Release(testkit.Ctx(t)); err != nil {
		t.Fatal(err)
	}
}

func wantAvailable(t testing.TB, s engine.Semaphore, want int) {
	t.Helper()
	if n, err := s.Available(testkit.Ctx(t)); n != want || err != nil {
		t.Errorf("%d are available, %v; want %d", n, err, want)
	}
}

func wantSet(t testing.TB, s engine.Semaphore, n int, want bool) {
	t.Helper()
	if set, err := s.TrySetPermits(testkit.Ctx(t), n); set != want || err != nil {
		t.Errorf("SetPermits(%d): %v, %v; want %v", n, set, err, want)
	}
}

// sleeps waits until the engine has a channel that the server has confirmed, and its waiter
// sleeps.
func sleeps(t testing.TB, e *engine.Engine) {
	t.Helper()
	testkit.Eventually(t, "it listens", func() bool {
		return testkit.Client(e).Stats().ChannelsConfirmed == 1 && e.Stats().InFlight == 0
	})
}

// testAcquireAfterAddPermits, both ways
func TestAddPermitsWakesAWaiterThatNeedsTwo(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		srv := on.server(t)
		e, java := testkit.Open(t, srv.URL()), redisson{srv, javaA}
		s := e.Semaphore("S")
		listener := listen(t, srv, semaphoreChannel("S"))
		wantSet(t, s, 0, true)
		listener.hearsNothing(t)
		f := s.AcquireAsync(context.Background(), 2)
		sleeps(t, e)
		java.addPermits(t, "S", 1)
		listener.hears(t, "1")
		java.addPermits(t, "S", 1)
		listener.hears(t, "2")
		p, err := f.Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		release(t, p)
		listener.hears(t, "2")
		if err := s.AddPermits(testkit.Ctx(t), 3); err != nil {
			t.Fatal(err)
		}
		listener.hears(t, "5")
		if !java.tryAcquire(t, "S", 5) {
			t.Error("Redisson gets no permits")
		}
	})
}

// testZero
func TestZeroPermits(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		srv := on.server(t)
		s := testkit.Open(t, srv.URL()).Semaphore("S")
		release(t, testkit.MustAcquire(t, s, 0))
		if p, err := s.TryAcquire(testkit.Ctx(t), 0); err != nil {
			t.Error(err)
		} else {
			release(t, p)
		}
		if srv.Do("EXISTS", "S") != int64(0) {
			t.Error("the semaphore exists")
		}
	})
}

// testAcquireWithoutSetPermits, testReleaseWithoutPermits
func TestReleaseCreatesTheSemaphore(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		srv := on.server(t)
		s, java := testkit.Open(t, srv.URL()).Semaphore("S"), redisson{srv, javaA}
		java.releasePermits(t, "S", 2)
		wantAvailable(t, s, 2)
		p := testkit.MustAcquire(t, s, 2)
		srv.Do("DEL", "S")
		release(t, p)
		wantAvailable(t, s, 2)
		if !java.tryAcquire(t, "S", 2) || java.tryAcquire(t, "S", 1) {
			t.Error("Redisson does not see two permits")
		}
	})
}

// testTrySetPermits: once; one that expires may be set again, and keeps its expiry meanwhile
func TestTrySetPermits(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		srv := on.server(t)
		s, java := testkit.Open(t, srv.URL()).Semaphore("S"), redisson{srv, javaA}
		wantSet(t, s, 10, true)
		wantSet(t, s, 15, false)
		if java.trySetPermits(t, "S", 20) != int64(0) {
			t.Error("Redisson has set it again")
		}
		wantAvailable(t, s, 10)
		srv.Do("DEL", "S")
		if java.trySetPermits(t, "S", 4, 60_000) != int64(1) {
			t.Error("Redisson has not set it")
		}
		release(t, testkit.MustAcquire(t, s, 3))
		if ttl := srv.Do("PTTL", "S").(int64); ttl <= 0 || ttl > 60_000 {
			t.Errorf("it has %d ms left", ttl)
		}
		srv.Do("PEXPIRE", "S", "1")
		testkit.Eventually(t, "it has expired", func() bool { return srv.Do("EXISTS", "S") == int64(0) })
		wantSet(t, s, 6, true)
	})
}

// testAddPermits, testReducePermits
func TestAddAndReducePermits(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		srv := on.server(t)
		s, java := testkit.Open(t, srv.URL()).Semaphore("S"), redisson{srv, javaA}
		for _, step := range []struct{ delta, want int }{{5, 5}, {5, 10}, {-3, 7}, {-10, -3}, {2, -1}, {4, 3}} {
			if err := s.AddPermits(testkit.Ctx(t), step.delta); err != nil {
				t.Fatal(err)
			}
			wantAvailable(t, s, step.want)
		}
		java.addPermits(t, "S", -4)
		if _, err := s.TryAcquire(testkit.Ctx(t), 1); !errors.Is(err, engine.ErrHeld) {
			t.Error(err)
		}
		wantAvailable(t, s, -1)
	})
}

// testBlockingAcquire, testBlockingNAcquire, testTryNAcquire, and Java's threads that wait: they
// sleep until a message with a number above zero
func TestBlockingAcquire(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		srv := on.server(t)
		e, java := testkit.Open(t, srv.URL()), redisson{srv, javaA}
		s := e.Semaphore("S")
		wantSet(t, s, 5, true)
		listener := listen(t, srv, semaphoreChannel("S"))
		if !java.tryAcquire(t, "S", 5) {
			t.Fatal("no permits")
		}
		one, four := s.AcquireAsync(context.Background(), 1), s.AcquireAsync(context.Background(), 4)
		sleeps(t, e) // the first has been refused
		start := time.Now()
		if _, err := s.Acquire(testkit.Ctx(t), 1, engine.Wait(200*time.Millisecond)); !errors.Is(err, engine.ErrHeld) || time.Since(start) < 200*time.Millisecond {
			t.Error(err)
		}
		sleeps(t, e)
		java.releasePermits(t, "S", 1)
		listener.hears(t, "1")
		first, err := one.Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		java.releasePermits(t, "S", 3)
		listener.hears(t, "3")
		if _, err := four.Result(); err != engine.ErrPending {
			t.Error(err)
		}
		release(t, first)
		second, err := four.Await(testkit.Ctx(t)) // in the same command: nobody is told of permits that are gone
		if err != nil {
			t.Fatal(err)
		}
		release(t, second)
		testkit.Eventually(t, "they are free", func() bool { return srv.Do("GET", "S") == "4" })
	})
}

// testDrainPermits
func TestDrainPermits(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		srv := on.server(t)
		s, java := testkit.Open(t, srv.URL()).Semaphore("S"), redisson{srv, javaA}
		if n, err := s.Drain(testkit.Ctx(t)); n != 0 || err != nil {
			t.Error(n, err)
		}
		if got := java.drainPermits(t, "S"); got != "0" {
			t.Error(got)
		}
		wantSet(t, s, 10, true)
		testkit.MustAcquire(t, s, 3)
		if n, err := s.Drain(testkit.Ctx(t)); n != 7 || err != nil {
			t.Error(n, err)
		}
		wantAvailable(t, s, 0)
		if _, err := s.TryAcquire(testkit.Ctx(t), 1); !errors.Is(err, engine.ErrHeld) {
			t.Error(err)
		}
	})
}

// testReleaseIfExists, testReleaseAcquire
func TestReleaseAcquireArithmetic(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		srv := on.server(t)
		s, java := testkit.Open(t, srv.URL()).Semaphore("S"), redisson{srv, javaA}
		if java.releaseIfExists(t, "S", 2) != int64(0) {
			t.Error("it exists")
		}
		wantSet(t, s, 20, true)
		want := 20
		var held []*engine.Permits
		for range 50 {
			if n := 1 + rand.IntN(3); rand.IntN(2) == 0 && want >= n {
				held, want = append(held, testkit.MustAcquire(t, s, n)), want-n
			} else if len(held) > 0 {
				want += held[0].Count()
				release(t, held[0])
				held = held[1:]
			}
			wantAvailable(t, s, want)
		}
		if java.releaseIfExists(t, "S", 2) != int64(1) {
			t.Error("it does not exist")
		}
		wantAvailable(t, s, want+2)
	})
}

// testConcurrency_SingleInstance, testConcurrencyLoop_MultiInstance, testConcurrency_MultiInstance_1_permits
func TestOnePermitExcludesRedissonToo(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		srv := on.server(t)
		wantSet(t, testkit.Open(t, srv.URL()).Semaphore("S"), 1, true)
		one := section{s: srv, room: 1}
		var all sync.WaitGroup
		for range 3 {
			e := testkit.Open(t, srv.URL())
			for range 4 {
				all.Go(func() {
					for range 15 {
						p := testkit.MustAcquire(t, e.Semaphore("S"), 1)
						one.pass(t, 1)
						release(t, p)
					}
				})
			}
		}
		all.Go(func() {
			java := redisson{srv, javaA}
			for done := 0; done < 20; {
				if java.tryAcquire(t, "S", 1) {
					one.pass(t, 1)
					java.releasePermits(t, "S", 1)
					done++
				}
				time.Sleep(rand.N(time.Millisecond)) // the pause of a client that polls
			}
		})
		all.Wait()
		if v := srv.Do("GET", "S"); v != "1" {
			t.Errorf("%v permits", v)
		}
	})
}

// testConcurrencyLoopMax_MultiInstance
func TestOneOrAllOfVeryManyPermits(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		srv := on.server(t)
		wantSet(t, testkit.Open(t, srv.URL()).Semaphore("S"), math.MaxInt32, true)
		var all sync.WaitGroup
		for range 2 {
			e := testkit.Open(t, srv.URL())
			for range 5 {
				all.Go(func() {
					for range 20 {
						n := 1
						if rand.IntN(2) == 0 {
							n = math.MaxInt32
						}
						release(t, testkit.MustAcquire(t, e.Semaphore("S"), n))
					}
				})
			}
		}
		all.Wait()
		if v := srv.Do("GET", "S"); v != fmt.Sprint(math.MaxInt32) {
			t.Errorf("%v permits", v)
		}
	})
}

// testAwaitTimeout, testAwaitTimeoutFail
func TestAwaitWithATimeout(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		srv := on.server(t)
		e, java := testkit.Open(t, srv.URL()), redisson{srv, javaA}
		l := e.Latch("C")
		if !java.trySetCount(t, "C", 1) {
			t.Fatal("it is closed")
		}
		if err := l.Await(testkit.Ctx(t), engine.Wait(2*time.Second)); !errors.Is(err, engine.ErrPending) {
			t.Error(err)
		}
		f := l.AwaitAsync(context.Background(), engine.Wait(testkit.Patience))
		sleeps(t, e)
		java.countDown(t, "C")
		if _, err := f.Await(testkit.Ctx(t)); err != nil {
			t.Error(err)
		}
	})
}

// testMultiAwait, testOnZeroMessageAllListenersExecuted, and what Java hears
func TestOneMessageOpensTheLatchForAll(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		srv := on.server(t)
		e := testkit.Open(t, srv.URL())
		l, listener := e.Latch("C"), listen(t, srv, latchChannel("C"))
		if set, err := l.TrySetCount(testkit.Ctx(t), 2); !set || err != nil {
			t.Fatal(set, err)
		}
		listener.hears(t, "1")
		var futures []*engine.Future[struct{}]
		for range 5 {
			futures = append(futures, l.AwaitAsync(context.Background()))
		}
		sleeps(t, e)
		for range 3 {
			if err := l.CountDown(testkit.Ctx(t)); err != nil {
				t.Fatal(err)
			}
		}
		listener.hears(t, "0") // once: not below zero
		if _, err := engine.AwaitAll(testkit.Ctx(t), futures...); err != nil {
			t.Fatal(err)
		}
		listener.hearsNothing(t)
	})
}

// testCountDown, testTrySetCount, testCount, testDelete, testDeleteFailed
func TestCountsOfALatch(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		srv := on.server(t)
		l, java := testkit.Open(t, srv.URL()).Latch("C"), redisson{srv, javaA}
		want := func(n int) {
			t.Helper()
			if got, err := l.Count(testkit.Ctx(t)); got != n || err != nil {
				t.Errorf("the count is %d, %v; want %d", got, err, n)
			}
		}
		want(0)
		if set, err := l.TrySetCount(testkit.Ctx(t), 2); !set || err != nil {
			t.Error(set, err)
		}
		if java.trySetCount(t, "C", 4) {
			t.Error("Redisson has set it again")
		}
		for _, n := range []int{1, 0, 0} {
			if err := l.CountDown(testkit.Ctx(t)); err != nil {
				t.Error(err)
			}
			want(n)
		}
		if java.deleteLatch(t, "C") || !java.trySetCount(t, "C", 3) {
			t.Error("it was not open")
		}
		want(3)
		f := l.AwaitAsync(context.Background())
		if !java.deleteLatch(t, "C") { // it says 1, as one that is closed
			t.Error("it is not deleted")
		}
		if _, err := f.Await(testkit.Ctx(t)); err != nil {
			t.Error(err)
		}
	})
}

// testSingleCountDownAwait_SingleInstance
func TestManyCountDownsAndAwaits(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		srv := on.server(t)
		e := testkit.Open(t, srv.URL())
		if _, err := e.Latch("C").TrySetCount(testkit.Ctx(t), 1000); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() {
				if err := e.Latch("C").Await(testkit.Ctx(t)); err != nil {
					t.Error(err)
				}
			})
			all.Go(func() {
				if err := e.Latch("C").CountDown(testkit.Ctx(t)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
}

// T30: a latch is opened and closed again before anybody can look. Those who listen are told, also one who came
// later than the channel was confirmed; Redisson's would look, and sleep. Who comes after that waits for the
// next opening.
func TestALatchThatIsClosedAgainAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		srv := on.server(t)
		e, java := testkit.Open(t, srv.URL()), redisson{srv, javaA}
		l := e.Latch("C")
		java.trySetCount(t, "C", 1)
		var early []*engine.Future[struct{}]
		before := srv.CommandStats()[verb(srv, "subscribe")] // the engine has asked whether there are sharded channels
		for i := range 3 {
			early = append(early, l.AwaitAsync(context.Background()))
			testkit.Eventually(t, "the channel is asked for", func() bool {
				return srv.CommandStats()[verb(srv, "subscribe")]-before == int64(i+1)
			})
			sleeps(t, e)
		}
		java.reopenLatch(t, "C", 1)
		late := l.AwaitAsync(context.Background())
		for _, f := range early {
			if _, err := f.Await(testkit.Ctx(t)); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := l.Count(testkit.Ctx(t)); n != 1 || err != nil {
			t.Fatalf("the count is %d, %v", n, err)
		}
		select {
		case <-late.Done():
			t.Error("told of an opening before it awaited the next")
		default:
		}
		java.countDown(t, "C")
		if _, err := late.Await(testkit.Ctx(t)); err != nil {
			t.Fatal(err)
		}
	})
}
