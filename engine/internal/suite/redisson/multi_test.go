package redisson

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// tryMultiLock is one round of Redisson's getMultiLock(names).tryLock(): the locks in their
// order, and all back if one is refused. With a lease Redisson sets it once more on each key
// when it has all, even if another holds the key by then.
func (j redisson) tryMultiLock(names []string, thread int, lease time.Duration) (bool, error) {
	for i, name := range names {
		granted, _, err := j.tryLock(name, thread, lease)
		if err == nil && granted {
			continue
		}
		return false, errors.Join(err, j.multiUnlock(names[:i], thread))
	}
	for _, name := range names {
		if _, err := j.eval(`return redis.call('PEXPIRE', KEYS[1], ARGV[1])`, []string{name}, lease.Milliseconds(), ""); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (j redisson) multiUnlock(names []string, thread int) error {
	for _, name := range names {
		if v, err := j.unlock(name, thread); v != int64(1) || err != nil {
			return errors.Join(err, errors.New("Redisson's unlock of "+name+" was refused"))
		}
	}
	return nil
}

func TestManyLocksExcludeRedissonsMultiLock(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e, j := testkit.Open(t, s.URL()), redisson{s, javaA}
		h := testkit.MustLockMany(t, e, []string{"a", "b", "c"})
		if granted, err := j.tryMultiLock([]string{"x", "c"}, 1, time.Minute); granted || err != nil {
			t.Errorf("while Pawl has c: %v, %v", granted, err)
		}
		if n := s.Do("EXISTS", "x"); n != int64(0) {
			t.Error("Redisson kept x")
		}
		if err := h.Unlock(testkit.Ctx(t)); err != nil {
			t.Error(err)
		}
		if granted, err := j.tryMultiLock([]string{"c", "b"}, 1, time.Minute); !granted || err != nil {
			t.Fatalf("when Pawl has released them: %v, %v", granted, err)
		}
		var refused *engine.NotAcquiredError
		if _, err := e.Many([]string{"a", "b"}...).TryLock(testkit.Ctx(t)); !errors.As(err, &refused) || refused.Name != "b" || !errors.Is(err, engine.ErrHeld) {
			t.Errorf("while Redisson has b: %v", err)
		}
		f := e.Many("a", "b", "c").LockAsync(testkit.Ctx(t))
		testkit.Eventually(t, "it waits, and keeps nothing", func() bool { return e.Stats().Waiting == 1 && len(testkit.Fields(t, s, "a")) == 0 })
		if err := j.multiUnlock([]string{"c", "b"}, 1); err != nil {
			t.Fatal(err)
		}
		released := time.Now()
		h, err := f.Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(released); took > 10*time.Second { // the lease was a minute
			t.Errorf("woken after %v", took)
		}
		if err := h.Unlock(testkit.Ctx(t)); err != nil {
			t.Error(err)
		}
		testkit.Clean(t, s, e)
	})
}

// Both take overlapping sets again and again, in opposite orders.
func TestManyLocksBesideRedissonsMultiLock(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e, j := testkit.Open(t, s.URL()), redisson{s, javaA}
		const each = 100
		one := section{s: s, room: 1}
		var wg sync.WaitGroup
		wg.Go(func() {
			for range each {
				h, err := e.LockMany(testkit.Ctx(t), []string{"a", "b", "c"})
				if err != nil {
					t.Error(err)
					return
				}
				one.pass(t, 1)
				if err := h.Unlock(testkit.Ctx(t)); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			names := []string{"c", "b"}
			for done := 0; done < each; {
				granted, err := j.tryMultiLock(names, 1, time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				if !granted {
					continue
				}
				one.pass(t, 1)
				done++
				if err := j.multiUnlock(names, 1); err != nil {
					t.Error(err)
					return
				}
			}
		})
		wg.Wait()
		if n := one.passed.Load(); n != 2*each {
			t.Errorf("%d have passed, want %d", n, 2*each)
		}
		testkit.Clean(t, s, e)
	})
}

// RedissonMultiLockTest: testLockUnlock, testMultiThreads, and LockReactiveTest.testMultiLock
func TestManyLocksAreHeldWhileTheyAreLocked(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
		names := []string{"a", "b", "c"}
		held := func(want bool) {
			t.Helper()
			for _, name := range names {
				if st := state(t, e.Mutex(name)); st.Locked != want || st.Mine != want {
					t.Errorf("%s: %+v", name, st)
				}
			}
		}
		h := testkit.MustLockMany(t, e, names)
		held(true)
		next := other.Many(names...).LockAsync(testkit.Ctx(t))
		testkit.Eventually(t, "the second one waits", func() bool { return other.Stats().Waiting > 0 })
		if err := h.Unlock(testkit.Ctx(t)); err != nil {
			t.Fatal(err)
		}
		h, err := next.Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Unlock(testkit.Ctx(t)); err != nil {
			t.Fatal(err)
		}
		held(false)
		testkit.Clean(t, s, e, other)
	})
}

// RedissonMultiLockTest.testWaitAndLeaseTimeouts
func TestOneOfTenGetsManyLocks(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		var tries []*engine.Future[*engine.Hold]
		for range 10 {
			tries = append(tries, testkit.Open(t, s.URL()).Many("a", "b", "c").TryLockAsync(testkit.Ctx(t), engine.Lease(time.Minute)))
		}
		var winners []*engine.Hold
		for _, f := range tries {
			switch h, err := f.Await(testkit.Ctx(t)); {
			case err == nil:
				winners = append(winners, h)
			case !errors.Is(err, engine.ErrHeld):
				t.Error(err)
			}
		}
		if len(winners) != 1 {
			t.Fatalf("%d have them", len(winners))
		}
		if err := winners[0].Unlock(testkit.Ctx(t)); err != nil {
			t.Error(err)
		}
		testkit.Clean(t, s)
	})
}

// RedissonMultiLockTest.test
func TestManyLocksOfSeveralServers(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		var mine, theirs []engine.Mutex
		for range 3 {
			s := on.server(t)
			mine, theirs = append(mine, testkit.Open(t, s.URL()).Mutex("L")), append(theirs, testkit.Open(t, s.URL()).Mutex("L"))
		}
		h, err := engine.Multi(mine...).Lock(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := engine.Multi(theirs...).TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
				t.Errorf("another owner: %v", err)
			}
		}
		if err := h.Unlock(testkit.Ctx(t)); err != nil {
			t.Fatal(err)
		}
		if h, err = engine.Multi(theirs...).TryLock(testkit.Ctx(t)); err != nil {
			t.Fatal(err)
		}
		if err := h.Unlock(testkit.Ctx(t)); err != nil {
			t.Fatal(err)
		}
	})
}
