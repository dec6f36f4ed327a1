package redisson

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// T29: beside a lock there are keys of Redisson's own for a while, by which it knows its repeats.
// Nothing that an engine does touches them, and nothing looks for keys by a pattern.
func TestKeysOfRedissonBesideALockAreLeftAlone(t *testing.T) {
	everyContest(t, func(t *testing.T, on ground, c contest) {
		s := on.server(t)
		e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
		latches := make(map[string]string)
		for i, end := range []string{"", ":0123456789abcdef", ":" + javaA} {
			key := "redisson_unlock_latch:{L}" + end
			latches[key] = fmt.Sprint(i)
			s.Do("SET", key, latches[key])
		}
		are := func(when string) {
			t.Helper()
			for key, want := range latches {
				if v, ttl := s.Do("GET", key), s.Do("PTTL", key); v != want || ttl != int64(-1) {
					t.Errorf("%s: %s is %v, and ends in %v", when, key, v, ttl)
				}
			}
		}

		m := c.holds(e)
		h := testkit.MustLock(t, m, engine.Lease(time.Minute))
		if err := h.Extend(testkit.Ctx(t), time.Hour); err != nil {
			t.Error(err)
		}
		testkit.MustUnlock(t, h)
		h = testkit.MustLock(t, m)
		testkit.MustUnlock(t, testkit.MustReenter(t, m, h))
		renewed := e.Stats().Renewed
		testkit.RenewAll(e)
		testkit.Eventually(t, "it is renewed", func() bool { return e.Stats().Renewed > renewed })
		if st := state(t, m); !st.Mine {
			t.Errorf("%+v", st)
		}
		next := c.waits(other).LockAsync(testkit.Ctx(t))
		testkit.Eventually(t, "another waits", func() bool { return other.Stats().Waiting == 1 && other.Stats().InFlight == 0 })
		testkit.MustUnlock(t, h)
		removed, err := next.Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		are("after a release")
		if done, err := c.waits(e).ForceUnlock(testkit.Ctx(t)); !done || err != nil {
			t.Error(done, err)
		}
		are("after a release by force")
		testkit.RenewUntil(t, removed.Done(), other) // or the next reader would join this one, which is believed in until then
		testkit.MustLock(t, c.waits(other))
		waits := m.LockAsync(testkit.Ctx(t))
		for _, x := range []interface{ Close() error }{e, other} {
			if err := x.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := waits.Await(testkit.Ctx(t)); err == nil {
			t.Error("granted by a closed engine")
		}
		are("after the engines have closed")

		if n := s.Do("EXISTS", "L"); n != int64(0) {
			t.Error("the lock is left")
		}
		stats := s.CommandStats()
		for _, verb := range []string{"keys", "scan", "randomkey", "flushdb", "flushall"} {
			if n := stats[verb]; n != 0 {
				t.Errorf("%s was sent %d times", verb, n)
			}
		}
	})
}
